//! Regions whose memory holds anything; the steps are those of the fuzz target `engine_region`.

use crate::fuzz::TARGETS;
use crate::fuzz::consumer::fuzz_consumer;
use crate::fuzz::region_unsafe::{Hostage, LAYOUT, fuzz_region};
use baton_engine::region::{EngineRegion, LayoutError};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 3000 }))]

    #[test]
    fn nothing_that_memory_holds_harms_the_engines_side(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_region(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_hostile_consumer_harms_no_other(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_consumer(&data);
    }
}

#[test]
fn what_makes_no_sense_is_counted_and_skipped() {
    let hostage = Hostage::fresh();
    let engine = EngineRegion::new(hostage.region.clone());
    // Doorbell ring of 4 entries after the header, two a word; its tail is the
    // first word of the header's second line pair.
    let (ring, tail) = (1152 / 8, 128 / 8);
    hostage.scribble(ring, true, 1 << 32 | 77);
    hostage.scribble(ring + 1, true, u64::from(u32::MAX) << 32 | 2);
    hostage.scribble(tail, false, 4);
    let mut out = [0; 8];
    assert_eq!(engine.pop_doorbells(&mut out), 2);
    assert_eq!((out[0], out[1], engine.bad_input().doorbells), (1, 2, 2));
    hostage.scribble(tail, false, 9);
    assert_eq!(engine.pop_doorbell(), None);
    assert_eq!(engine.bad_input().positions, 1);
    hostage.scribble(tail, false, 10);
    hostage.scribble(ring, true, 2 << 32);
    assert_eq!(engine.pop_doorbell(), Some(2), "it goes on from the position that made no sense");
}

#[test]
fn a_region_is_opened_by_what_its_header_says() {
    let hostage = Hostage::fresh();
    let whole = hostage.words * 8;
    let open = |len| hostage.open(len).map(|region| region.layout());
    assert_eq!(open(whole), Ok(LAYOUT));
    assert_eq!((open(whole - 4096), open(8)), (Err(LayoutError::Memory), Err(LayoutError::Memory)));
    hostage.scribble(1, true, LAYOUT.data_bytes + (1 << 20));
    assert_eq!(open(whole), Err(LayoutError::Memory), "larger than its memory");
    assert_eq!(hostage.region.layout(), LAYOUT, "one that is open does not look at its header again");
    hostage.scribble(2, true, u64::MAX);
    assert_eq!(open(whole), Err(LayoutError::Header), "another version");
    hostage.scribble(0, true, 0);
    assert_eq!(open(whole), Err(LayoutError::Header), "no region");
}

#[test]
fn the_fuzzing_corpora_run_clean() {
    baton_testkit::corpus::replay(TARGETS);
}
