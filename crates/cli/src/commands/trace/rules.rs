//! The options that choose how frames are coalesced.

use baton_analyse::coalesce::{Checksums, Limits, Profile, Window};
use baton_apps::fail::usage;
use std::num::{NonZeroU32, NonZeroU64};

/// Most runs held at a time. A run costs some hundred bytes; this bounds the memory.
const CACHE_MAX: i64 = 65_536;

/// The rules of coalescing, as options.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Rules")]
pub struct Rules {
    /// Rules of coalescing: receive side coalescing in a NIC with buffers (rsc, RSC §4), or receive
    /// aggregation in front of a stack (ra, RA §3)
    #[arg(long, value_enum, default_value_t = Choice::Rsc)]
    profile: Choice,

    /// Most runs held at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=CACHE_MAX))]
    cache: u32,

    /// Most bytes of payload in a run (rsc only; with ra a run is an IP packet of at most 65535 bytes)
    /// [default: 8192]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    buffer: Option<u32>,

    /// Most segments in a run [default: no limit for rsc, 20 for ra]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// Flush all runs after this many frames of any kind [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    window_packets: Option<u32>,

    /// Flush all runs this many microseconds after the first frame of a window instead
    #[arg(long, value_name = "T", conflicts_with = "window_packets", value_parser = clap::value_parser!(u64).range(1..=u64::MAX / 1000))]
    window_us: Option<u64>,

    /// Trust checksums, or verify them and bypass segments whose checksum is wrong or cannot be checked
    #[arg(long, value_enum, default_value_t = Checksum::Trust)]
    checksum: Checksum,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Rsc,
    Ra,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Checksum {
    Trust,
    Verify,
}

impl Rules {
    /// The limits for the coalescer.
    ///
    /// # Errors
    /// A usage error if an option has no meaning with these rules.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        if self.profile == Choice::Ra && self.buffer.is_some() {
            let what = "--buffer has no meaning with --profile ra, where a run is an IP packet of at most 65535 bytes";
            return Err(usage(what, "leave it out, or bound a run with --limit"));
        }
        let base = Limits::of(match self.profile {
            Choice::Rsc => Profile::Rsc,
            Choice::Ra => Profile::Ra,
        });
        let window = match (self.window_packets, self.window_us) {
            (Some(frames), _) => NonZeroU32::new(frames).map(Window::Frames),
            (None, Some(us)) => NonZeroU64::new(us * 1000).map(Window::Time),
            (None, None) => None,
        };
        Ok(Limits {
            cache: NonZeroU32::new(self.cache).unwrap_or(base.cache),
            buffer: self.buffer.unwrap_or(base.buffer),
            segments: self.limit.and_then(NonZeroU32::new).or(base.segments),
            window: window.unwrap_or(base.window),
            ..base
        })
    }

    /// How checksums are treated.
    pub fn checksums(&self) -> Checksums {
        match self.checksum {
            Checksum::Trust => Checksums::Trust,
            Checksum::Verify => Checksums::Verify,
        }
    }
}
