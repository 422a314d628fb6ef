//! Every kernel gives the value of the RFC 1071 loop and copies what it summed,
//! no more. Under Miri only the portable kernel is there, and fewer lengths.

use baton_wire::addr::Addr;
use baton_wire::checksum::{self, Kernel, KernelKind};
use proptest::prelude::*;

const MAX_LEN: usize = if cfg!(miri) { 150 } else { 9000 };

fn kernels() -> Vec<Kernel> {
    KernelKind::ALL.into_iter().filter_map(Kernel::new).collect()
}

/// Bytes without a short period, and with runs of 0xff that make carries.
fn bytes(len: usize) -> Vec<u8> {
    let mut dice = fastrand::Rng::with_seed(1);
    (0..len).map(|_| if dice.u8(..4) == 0 { 0xff } else { dice.u8(..) }).collect()
}

/// Sums and copies `src` into the middle of a canvas, which must not change elsewhere.
fn check(kernel: Kernel, src: &[u8], dst_offset: usize, canvas: &mut [u8]) {
    let reference = u32::from(checksum::rfc1071(src));
    assert_eq!(kernel.sum(src), reference, "{kernel:?} sum of {} bytes", src.len());
    canvas.fill(0x5a);
    let dst = &mut canvas[dst_offset..dst_offset + src.len()];
    assert_eq!(kernel.copy_and_sum(dst, src), reference, "{kernel:?} copy of {} bytes", src.len());
    assert!(dst == src, "{kernel:?} copied {} bytes wrongly", src.len());
    let (before, after) = (&canvas[..dst_offset], &canvas[dst_offset + src.len()..]);
    assert!(before.iter().chain(after).all(|byte| *byte == 0x5a), "{kernel:?} wrote outside of {} bytes", src.len());
}

#[test]
fn every_length_equals_the_reference() {
    let data = bytes(MAX_LEN);
    let mut canvas = vec![0; MAX_LEN + 128];
    for kernel in kernels() {
        for len in 0..=MAX_LEN {
            check(kernel, &data[..len], 64, &mut canvas);
        }
    }
}

#[test]
fn every_alignment_equals_the_reference() {
    let lengths: &[usize] = if cfg!(miri) {
        &[1, 33]
    } else {
        &[0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 536, 1448, 1449, 1460, 4096]
    };
    let step = if cfg!(miri) { 13 } else { 1 };
    let data = bytes(5000);
    for kernel in kernels() {
        for &len in lengths {
            let mut canvas = vec![0; len + 192];
            for src_offset in (0..64).step_by(step) {
                for dst_offset in (0..64).step_by(step) {
                    check(kernel, &data[src_offset..src_offset + len], 64 + dst_offset, &mut canvas);
                }
            }
        }
    }
}

#[test]
fn all_ones_and_all_zeros_keep_their_two_zeros() {
    for kernel in kernels() {
        for len in [0, 1, 2, 64, 1448, 65_536] {
            assert_eq!(kernel.sum(&vec![0; len]), 0);
        }
        for len in [2, 64, 1448, 65_536] {
            assert_eq!(kernel.sum(&vec![0xff; len]), 0xffff);
        }
    }
}

#[test]
fn the_example_of_rfc_1071() {
    // RFC 1071 §3: the sum is ddf2.
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum::rfc1071(&data), 0xddf2);
    assert_eq!(checksum::sum(&data), 0xddf2);
    assert_eq!(checksum::finish(0xddf2), 0x220d);
}

#[test]
fn the_example_of_rfc_1624() {
    // RFC 1624 §4: header checksum DD2F, one word 5555 becomes 3285, new checksum 0000.
    assert_eq!(checksum::update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn the_chosen_kernel_is_the_one_used_and_can_be_switched() {
    let data = bytes(1448);
    let reference = u32::from(checksum::rfc1071(&data));
    for kernel in kernels() {
        checksum::set_kernel(kernel);
        assert_eq!(checksum::kernel(), kernel);
        assert_eq!(checksum::sum(&data), reference);
        let mut copy = vec![0; data.len()];
        assert_eq!(checksum::copy_and_sum(&mut copy, &data), reference);
        assert_eq!(copy, data);
    }
    assert_eq!(Kernel::new(KernelKind::Portable), Some(Kernel::PORTABLE));
}

#[test]
#[should_panic(expected = "different length")]
fn copying_between_different_lengths_is_a_bug() {
    checksum::copy_and_sum(&mut [0; 3], &[0; 4]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_equal_the_reference(data in proptest::collection::vec(any::<u8>(), 0..MAX_LEN)) {
        let mut canvas = vec![0; data.len() + 2];
        for kernel in kernels() {
            check(kernel, &data, 1, &mut canvas);
        }
    }

    #[test]
    fn parts_combine_to_the_whole(data in proptest::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(data.len() + 1);
        let (first, second) = data.split_at(cut);
        let combined = checksum::combine(checksum::sum(first), cut, checksum::sum(second));
        prop_assert_eq!(combined, u32::from(checksum::rfc1071(&data)));
    }

    #[test]
    fn an_updated_field_equals_a_computed_one(
        data in proptest::collection::vec(any::<u8>(), 8..100),
        new in any::<u32>(),
    ) {
        // The covered bytes keep a word that is not 0, as every real header does.
        let mut data = [vec![0x45, 0x00], data].concat();
        data.truncate(data.len() & !1);
        let old_field = checksum::finish(checksum::sum(&data));
        let old = [data[4], data[5], data[6], data[7]];
        data[4..8].copy_from_slice(&new.to_be_bytes());
        let new_field = checksum::finish(checksum::sum(&data));
        prop_assert_eq!(checksum::update32(old_field, u32::from_be_bytes(old), new), new_field);
        let by_halves = checksum::update(
            checksum::update(old_field, u16::from_be_bytes([old[0], old[1]]), (new >> 16) as u16),
            u16::from_be_bytes([old[2], old[3]]),
            new as u16,
        );
        prop_assert_eq!(by_halves, new_field);
    }

    #[test]
    fn the_pseudo_header_is_that_of_the_rfcs(src in any::<u128>(), dst in any::<u128>(), len in any::<u32>(), v4 in any::<bool>()) {
        let (src, dst) = if v4 {
            (Addr::v4((src as u32).to_be_bytes()), Addr::v4((dst as u32).to_be_bytes()))
        } else {
            (Addr(src), Addr(dst))
        };
        let mut header = if v4 {
            [src.octets_v4().to_vec(), dst.octets_v4().to_vec()].concat()
        } else {
            [src.octets().to_vec(), dst.octets().to_vec()].concat()
        };
        header.extend(6u32.to_be_bytes());
        header.extend(len.to_be_bytes());
        prop_assert_eq!(checksum::pseudo(src, dst, 6, len), u32::from(checksum::rfc1071(&header)));
    }

    #[test]
    fn folding_keeps_the_value(sum in any::<u64>()) {
        let expected = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
        prop_assert_eq!(u64::from(checksum::fold64(sum)), expected);
        let low = sum as u32;
        prop_assert_eq!(checksum::fold(low), checksum::fold64(u64::from(low)));
    }
}
