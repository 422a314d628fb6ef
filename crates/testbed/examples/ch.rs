//! Prints the paper's figures beside those of the testbed.
//!
//! `ch calibrate` prints the costs that the baseline gives; `ch sensitivity` varies each cost.

use baton_testbed::ch::{Row, experiments, sensitivity};
use baton_testbed::world::Config;

fn main() {
    let base = Config::baseline();
    match std::env::args().nth(1).as_deref() {
        Some("calibrate") => println!("{:#?}", baton_testbed::calibration::calibrate(&base, 4)),
        Some("sensitivity") => print(&sensitivity(&base, "W-4096-P-L-FCFS-400")),
        None => print(&experiments(&base, &mut |name| eprintln!("{name}"))),
        Some(other) => {
            eprintln!("`{other}` is no part of this example; give `calibrate`, `sensitivity` or nothing");
            std::process::exit(2);
        }
    }
}

fn print(rows: &[Row]) {
    for Row { id, name, unit, paper, here } in rows {
        match paper {
            Some(paper) if *paper != 0.0 => {
                let error = 100.0 * (here / paper - 1.0);
                println!("{id:14} {name:45} {paper:9.1} {here:9.1} {unit:12} {error:+.0} %");
            }
            Some(paper) => println!("{id:14} {name:45} {paper:9.1} {here:9.1} {unit}"),
            None => println!("{id:14} {name:45} {:>9} {here:9.1} {unit}", "-"),
        }
    }
}
