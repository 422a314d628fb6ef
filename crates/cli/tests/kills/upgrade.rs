//! A new engine replaces the old one under load.

use crate::figures::Figures;
use crate::kinds::{start, went_on};
use crate::rig::Plan;
use baton_testkit::{Running, need_program, need_root, wait_for};
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn an_engine_is_replaced() {
    need_root!();
    need_program!("clang");
    let plan = Plan::of(10);
    let (mut rig, mut figures) = (start(plan, false), Figures::new("upgrade", plan.seed));
    let resets = rig.resets();
    for round in 0..plan.rounds {
        rig.all_in_engine();
        rig.moves(true);
        let engine = rig.process(&["engine"]).pid;
        rig.random_moment(300);
        let socket = rig.socket();
        let mut said = String::new();
        rig.watch(false, || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
            command.args(["upgrade", "--socket"]).arg(socket).stdout(Stdio::piped());
            let mut upgrade = Running::start(&mut command);
            wait_for("the upgrade", || upgrade.child().try_wait().unwrap().is_some());
            upgrade.child().stdout.take().expect("it was piped").read_to_string(&mut said).unwrap();
        });
        let text = went_on(&mut rig, &mut figures, 0);
        assert_ne!(rig.process(&["engine"]).pid, engine, "it is another one");
        figures.tell(round, plan.rounds, &format!("{}; {text}", said.trim()));
        let pause = said.split_whitespace().rev().nth(1).and_then(|number| number.parse::<u64>().ok());
        figures.times("the longest pause, as the service says", [pause.expect("a number") * 1000]);
        rig.moves(false);
        rig.look();
    }
    assert_eq!(rig.resets(), resets);
    rig.finish_programs();
    figures.report(&rig.growth);
    rig.finish();
}
