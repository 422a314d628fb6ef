//! loads × {joined, joined and brought home, 200 moves, from a pair to an engine and back} × places × {under
//! `baton run`, through the API}.
//!
//! A move names one end, and both go. Another place is another row of [`PLACES`].

use crate::load::Load;
use crate::rig::{By, Rig};
use crate::venue::{PLACES, Venue, with_an_engine};
use baton_policy::rules::Rule;
use baton_testkit::{need_program, need_root};

/// The loads of this matrix.
pub const LOADS: [Load; 8] =
    [Load::Idle, Load::Out, Load::Both, Load::RequestResponse, Load::OurFin, Load::Unread, Load::Full, Load::Stopped];

/// The number of moves of a connection that goes to and fro.
const MOVES: u32 = 200;

/// Visits of an engine, of four moves each.
const VISITS: u32 = MOVES / 4;

fn each(by: By, case: fn(&mut Rig, Load)) {
    PLACES.iter().for_each(|(place, make)| each_load(place, make(), by, case));
}

fn each_load(place: &str, venue: Venue, by: By, case: fn(&mut Rig, Load)) {
    let mut rig = Rig::start(venue, by);
    let resets = rig.resets();
    for load in LOADS {
        println!("{place}, {load:?}");
        case(&mut rig, load);
        assert_eq!(rig.resets(), resets, "{place}, {load:?}: a reset");
    }
}

/// Is joined while it is in use, and goes on and ends as a pair.
fn joined(rig: &mut Rig, load: Load) {
    let mut line = rig.line(load);
    line.home();
    line.go_on();
    line.join();
    line.go_on();
    line.halfway();
    line.go_on();
    line.finish();
}

/// Comes home while it is in use, and goes on and ends in the kernel.
fn brought_home(rig: &mut Rig, load: Load) {
    let mut line = rig.line(load);
    line.go_on();
    line.halfway();
    line.home();
    line.go_on();
    line.finish();
}

fn to_and_fro(rig: &mut Rig, load: Load) {
    let mut line = rig.line(load);
    for round in 0..MOVES / 2 {
        if round == MOVES / 4 {
            line.halfway();
        }
        line.go_on();
        line.home();
        line.go_on();
        line.join();
    }
    line.finish();
}

/// One end visits an engine, and both are joined again.
fn by_an_engine(rig: &mut Rig, load: Load) {
    let mut line = rig.line(load);
    for _ in 0..VISITS {
        line.go_on();
        line.home();
        line.go_on();
        line.visit_engine();
        line.go_on();
        line.leave_engine();
        line.go_on();
        line.join_again();
    }
    line.go_on();
    line.halfway();
    line.finish();
}

fn to_an_engine_and_back(by: By) {
    need_root!();
    need_program!("clang");
    each_load("two namespaces, with an engine", with_an_engine(), by, by_an_engine);
}

#[test]
fn to_an_engine_and_back_under_baton_run() {
    to_an_engine_and_back(By::Run);
}

#[test]
fn to_an_engine_and_back_through_the_api() {
    to_an_engine_and_back(By::Api);
}

/// A new policy with the rule `pairs` sends the end home that is in an engine. It leaves pairs alone, and `never` does not.
#[test]
fn a_policy_of_pairs_alone_takes_connections_from_engines() {
    need_root!();
    need_program!("clang");
    let mut rig = Rig::start(with_an_engine(), By::Run);
    let mut line = rig.line(Load::Both);
    line.home();
    line.visit_engine();
    line.rule(Rule::Pairs);
    line.is_at(["kernel"; 2]);
    line.go_on();
    line.join_again();
    line.rule(Rule::Pairs);
    line.is_at(["pair"; 2]);
    line.rule(Rule::Never);
    line.is_at(["kernel"; 2]);
    line.go_on();
    line.finish();
}

/// Is to go from a pair to an engine where none can have it, and is joined again.
fn to_no_engine(rig: &mut Rig, load: Load) {
    let mut line = rig.line(load);
    line.go_on();
    line.home();
    line.goes_to_no_engine();
    line.go_on();
    line.join();
    line.go_on();
    line.finish();
}

macro_rules! matrix {
    ($($name:ident: $by:ident $case:ident;)*) => {$(
        #[test]
        fn $name() {
            need_root!();
            need_program!("nft");
            each(By::$by, $case);
        }
    )*};
}

matrix! {
    joined_under_baton_run: Run joined;
    joined_through_the_api: Api joined;
    brought_home_under_baton_run: Run brought_home;
    brought_home_through_the_api: Api brought_home;
    to_and_fro_under_baton_run: Run to_and_fro;
    to_and_fro_through_the_api: Api to_and_fro;
    to_no_engine_under_baton_run: Run to_no_engine;
    to_no_engine_through_the_api: Api to_no_engine;
}
