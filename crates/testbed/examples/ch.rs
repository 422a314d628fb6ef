//! Prints the paper's figures beside those of the testbed.
//!
//! `ch ID` prints one experiment, `ch statements` checks the paper's comparisons, `ch calibrate` prints the
//! costs that the baselines give, and `ch sensitivity` varies each cost.

use baton_testbed::ch::runs::Runs;
use baton_testbed::ch::sensitivity::sensitivity;
use baton_testbed::ch::statements::{Statement, statements};
use baton_testbed::ch::{IDS, Row, experiments};
use baton_testbed::world::Config;

fn main() {
    let base = Config::baseline();
    let mut progress = |name: &str| eprintln!("{name}");
    match std::env::args().nth(1).as_deref() {
        Some("calibrate") => println!("{:#?}", baton_testbed::calibration::calibrate(&base, 4)),
        Some("sensitivity") => {
            for name in ["W-4096-P-L-FCFS-400", "W-1024-N-N-FCFS-400"] {
                print(&sensitivity(&base, name, &mut progress));
            }
        }
        Some("statements") => statements(&mut Runs::new(&base, &mut progress)).iter().for_each(print_statement),
        Some(other) if !IDS.contains(&other) => {
            eprintln!("`{other}` is no part of this example; give `calibrate`, `sensitivity`, `statements`,");
            eprintln!("nothing, or one of {}", IDS.join(", "));
            std::process::exit(2);
        }
        only => {
            let mut runs = Runs::new(&base, &mut progress);
            print(&experiments(&mut runs, |id| only.is_none_or(|only| only == id)));
        }
    }
}

fn print(rows: &[Row]) {
    let text = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    for Row { id, name, unit, paper, here, .. } in rows {
        let error =
            paper.zip(*here).filter(|(paper, _)| *paper != 0.0).map(|(paper, here)| 100.0 * (here / paper - 1.0));
        let error = error.map_or(String::new(), |error| format!("{error:+.0} %"));
        println!("{id:14} {name:62} {:>9} {:>9} {unit:13} {error}", text(paper), text(here));
    }
}

fn print_statement(statement: &Statement) {
    let Statement { claim, unit, paper, here, .. } = statement;
    let holds = if statement.holds() { "holds" } else { "FAILS" };
    let paper = paper.map_or("-".to_owned(), |paper| format!("{paper:.1}"));
    println!("{holds} {claim:72} {paper:>8} {here:8.1} {unit}");
}
