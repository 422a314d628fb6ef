//! The memory of two programs goes when one of them is gone.

use crate::rig::{By, Rig};
use crate::venue::PLACES;
use baton_testkit::{need_root, wait_for};

/// Programs that come and are killed, one after another.
const CALLERS: usize = 4;

fn links_of_programs_that_have_gone_are_let_go(by: By) {
    need_root!();
    let (_, make) = PLACES[0];
    let mut rig = Rig::start(make(), by);
    for _ in 0..CALLERS {
        rig.caller_is_killed(by);
    }
    wait_for("the end of their links", || rig.link_files() == 0);
}

#[test]
fn links_of_programs_that_have_gone_are_let_go_under_baton_run() {
    links_of_programs_that_have_gone_are_let_go(By::Run);
}

#[test]
fn links_of_programs_that_have_gone_are_let_go_through_the_api() {
    links_of_programs_that_have_gone_are_let_go(By::Api);
}
