//! The reassembly area: what comes back, what it refuses, stale handles.

use baton_engine::reassembly::Reassembly;
use baton_tcp::segment::ParkId;
use baton_wire::addr::Tuple;
use proptest::prelude::*;

proptest! {
    #[test]
    fn keeps_pieces_apart_and_within_the_limit(
        limit in 0usize..5000,
        ops in prop::collection::vec((any::<bool>(), 0usize..1500, any::<prop::sample::Index>()), 0..200),
    ) {
        let mut area = Reassembly::new(limit);
        let mut model: Vec<(ParkId, Vec<u8>)> = Vec::new();
        let mut stale = Vec::new();
        let (mut refused, mut bytes_high, mut pieces_high) = (0, 0, 0);
        for (step, (park, len, pick)) in ops.into_iter().enumerate() {
            if park {
                let data = vec![step as u8; len];
                let used: usize = model.iter().map(|(_, data)| data.len() + 64).sum();
                let id = area.park(&data);
                prop_assert_eq!(id.is_some(), used + len + 64 <= limit);
                match id {
                    Some(id) => model.push((id, data)),
                    None => refused += 1,
                }
            } else if !model.is_empty() {
                let (id, _) = model.swap_remove(pick.index(model.len()));
                area.free(id);
                stale.push(id);
            }
            if !stale.is_empty() {
                let id = stale[pick.index(stale.len())];
                area.free(id);
                prop_assert_eq!(area.get(id), b"");
            }
            for (id, data) in &model {
                prop_assert_eq!(area.get(*id), &data[..]);
            }
            let bytes = model.iter().map(|(_, data)| data.len()).sum();
            (bytes_high, pieces_high) = (bytes_high.max(bytes), pieces_high.max(model.len()));
            let usage = area.usage();
            prop_assert_eq!((usage.bytes, usage.pieces, usage.refused), (bytes, model.len(), refused));
            prop_assert_eq!((usage.bytes_high_water, usage.pieces_high_water), (bytes_high, pieces_high));
        }
    }
}

#[test]
fn handles_that_were_never_given_are_harmless() {
    let mut area = Reassembly::new(1000);
    let id = area.park(b"x").unwrap();
    for bits in [1, 1 << 20, u32::MAX] {
        area.free(ParkId(id.0 ^ bits));
        assert_eq!(area.get(ParkId(id.0 ^ bits)), b"");
    }
    assert_eq!(area.get(id), b"x");
}

#[test]
fn a_stranger_is_known_by_its_tuple_until_it_is_freed() {
    let mut area = Reassembly::new(1000);
    let name = |remote_port| Tuple { remote_port, ..Tuple::default() };
    let stranger = area.park_stranger(name(1), b"x").unwrap();
    let other = area.park(b"y").unwrap();
    assert!(area.is_stranger(stranger) && !area.is_stranger(other));
    assert!(area.has_stranger(&name(1)) && !area.has_stranger(&name(2)));
    area.free(other);
    assert!(area.has_stranger(&name(1)));
    area.free(stranger);
    assert!(!area.has_stranger(&name(1)) && !area.is_stranger(stranger));
}
