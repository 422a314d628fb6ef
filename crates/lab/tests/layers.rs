//! Tables 2 and 3 of LA, measured: real connections between two namespaces.

use baton_apps::signal::Stop;
use baton_lab::experiment::{Lab, Row, plan};
use baton_lab::papers;
use baton_lab::world::World;
use baton_testkit::{need_program, need_root, note_skip};
use std::cell::RefCell;

/// Round trips of a run: one slice, so that the shares of a bar add up exactly.
const TRIPS: usize = 500;

/// Makes sure that the parts of a bar were seen, and add up.
fn check_bar(rows: &[&Row], bar: &str, unseen: &[&str]) {
    let mine = |row: &&&Row| row.name.contains(&format!(" bytes · {bar} · "));
    let rows: Vec<&&Row> = rows.iter().filter(mine).collect();
    let empty: Vec<&str> = rows
        .iter()
        .filter(|row| row.here.is_none() && !unseen.iter().any(|part| row.name.contains(part)))
        .map(|row| row.name.as_str())
        .collect();
    assert!(empty.is_empty(), "{empty:?}");
    let shares: f64 = rows.iter().filter(|row| row.unit == "%").filter_map(|row| row.here).sum();
    assert!((shares - 100.0).abs() < 0.01, "{bar}: {shares} %");
    let total = rows.iter().find(|row| row.name.ends_with("total of these")).unwrap_or_else(|| panic!("{bar}"));
    assert!(total.here > Some(0.0) && total.paper > Some(0.0), "{total:?}");
}

#[test]
fn the_time_of_messages_of_both_stacks_is_found_by_layer() {
    need_root!();
    for (program, _) in World::PROGRAMS {
        need_program!(program);
    }
    let (stop, told) = (Stop::default(), RefCell::new(Vec::new()));
    let tell = |what: &str| told.borrow_mut().push(what.to_owned());
    let experiment = papers::find("la-layers").unwrap();
    let mut extent = plan("quick").unwrap().remove(experiment.id).unwrap();
    for (axis, value) in [("round_trips", TRIPS), ("message_bytes", 500)] {
        extent.set(axis, &[value]).unwrap();
    }
    let findings = (experiment.run)(&Lab::new(&stop, &tell), &extent).unwrap();

    let missing = |wire: &str| told.borrow().iter().any(|told| told.starts_with(&format!("not measured: {wire}")));
    for wire in ["kernel, offloads", "kernel, no offloads", "Baton, TAP offloads", "Baton, TAP", "Baton, AF_XDP"] {
        let kernel = wire.starts_with("kernel");
        if missing(wire) || (kernel && missing("the kernel's layers")) {
            note_skip!("{wire}: {:?}", told.borrow());
            continue;
        }
        for table in ["la-table-2", "la-table-3"] {
            let rows: Vec<&Row> = findings.rows.iter().filter(|(id, _)| *id == table).map(|(_, row)| row).collect();
            assert!(rows.iter().any(|row| row.name == "500 bytes · 4.4BSD, ATM · IP" && row.paper.is_some()));
            // A kernel's driver has no point, and these devices do not tell when a frame arrived.
            check_bar(&rows, wire, &["ATM: not seen", "ATM, IPQ: receive-device"]);
        }
    }
}
