//! Connections with other features of the network stack, such as firewalls, routing and traffic control,
//! on the kernel alone and with Baton: with Baton a connection works exactly where it works on the
//! kernel, and stops where it stops there.
//!
//! A cell is a situation, a kind of traffic, a life of the connection, an address family and an engine
//! (`factors`). It is played on the kernel alone first, once for all cells that do not differ there, and
//! then with Baton (`play`), and the two outcomes are compared (`outcome`). Both ends are an ordinary
//! program (`end.c`), which checks each byte.
//!
//! `cargo test` plays cells in which each pair of two factors' values occurs (`cover`). `cargo xtask
//! beside` plays all cells, or a selection:
//!
//! * `BATON_BESIDE=all`: every cell, not only the selected ones;
//! * `BATON_BESIDE_ONLY`: names or parts of names of cells, separated by commas: `redirect`, `idle/ipv6`;
//! * `BATON_BESIDE_LOG`: a file of played cells; cells that passed are not played again unless named;
//! * `BATON_BESIDE_AT_ONCE`: the number of cells played at the same time (default 6).

mod counting;
mod cover;
mod factors;
mod half;
mod outcome;
mod play;
#[path = "../run/restless.rs"]
#[allow(dead_code, reason = "real programs use the rest")]
mod restless;
mod runner;
mod situation;
mod world;

/// A test for each situation.
macro_rules! situations {
    ($($name:ident: $situation:ident;)*) => {
        $(#[test] fn $name() {
            baton_testkit::need_root!();
            for program in ["cc", "clang", "nft", "ethtool"] {
                baton_testkit::need_program!(program);
            }
            crate::runner::run(crate::factors::Situation::$situation);
        })*

        #[test]
        fn each_situation_has_a_test() {
            let tested = [$(crate::factors::Situation::$situation),*];
            assert_eq!(tested, crate::factors::Situation::ALL);
        }
    };
}

situations! {
    stateful_rules: Stateful;
    redirect: Redirect;
    destination_nat: DestinationNat;
    source_nat: SourceNat;
    masquerade_between: Masquerade;
    a_ban_is_added: BanAdded;
    a_ban_is_removed: BanRemoved;
    limits: Limits;
    marks_choose_the_way: Marks;
    an_ipsec_policy_blocks: XfrmBlock;
    ipsec_in_transport_mode: XfrmTransport;
    a_token_bucket: Tbf;
    a_tc_program_before: TcBefore;
    a_tc_program_behind: TcBehind;
    a_program_of_the_control_group: CgroupProgram;
    an_address_is_removed: AddressRemoved;
    an_interface_is_renamed: Renamed;
    an_interface_goes_down_and_up: DownUp;
    an_interface_moves_away: MovedAway;
}
