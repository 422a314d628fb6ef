//! The options that choose how frames are coalesced.

use baton_analyse::classifier::Classifier;
use baton_analyse::coalesce::{Checksums, Limits, Profile, Window};
use baton_analyse::gro::{self, Lists};
use baton_analyse::rules::Given;
use baton_apps::fail::usage;
use std::num::{NonZeroU32, NonZeroU64};

/// Most runs held at a time. A run costs some hundred bytes; this bounds the memory.
const CACHE_MAX: i64 = 65_536;

/// The rules of coalescing, as options.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Rules")]
pub struct Rules {
    /// Rules of coalescing: receive side coalescing in a NIC with buffers (rsc, RSC §4), receive
    /// aggregation in front of a stack (ra, RA §3), or the generic receive offload of Linux (gro)
    #[arg(long, value_enum, default_value_t = Choice::Rsc)]
    profile: Choice,

    /// Most runs held at a time [default: 4; for gro 64 in 8 lists, or 8 for
    /// a device that gives no receive hash]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CACHE_MAX))]
    cache: Option<u32>,

    /// Most bytes of payload in a run (rsc only; with ra a run is an IP packet of at most 65535 bytes)
    /// [default: 8192]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    buffer: Option<u32>,

    /// Most segments in a run [default: no limit for rsc, 20 for ra]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// Flush all runs after this many frames of any kind [default: 20; for gro 64, the weight of a NAPI poll]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    window_packets: Option<u32>,

    /// Flush all runs this many microseconds after the first frame of a window instead (for gro it stands
    /// for gro_flush_timeout)
    #[arg(long, value_name = "T", conflicts_with = "window_packets", value_parser = clap::value_parser!(u64).range(1..=u64::MAX / 1000))]
    window_us: Option<u64>,

    /// Trust checksums, or verify them and bypass segments whose checksum is wrong or cannot be checked
    #[arg(long, value_enum, default_value_t = Checksum::Trust)]
    checksum: Checksum,

    /// Look at TCP segments inside tunnels (VXLAN, Geneve, GRE, IPIP, MPLS, PPPoE), as behind the tunnel's end
    #[arg(long)]
    inner: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Rsc,
    Ra,
    Gro,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Checksum {
    Trust,
    Verify,
}

impl Rules {
    /// The rules as chosen.
    ///
    /// # Errors
    /// A usage error if an option has no meaning with these rules.
    pub fn rules(&self) -> anyhow::Result<Given> {
        if self.profile != Choice::Gro {
            return Ok(self.limits()?.into());
        }
        let given = [(self.buffer, "--buffer"), (self.limit, "--limit")];
        if let Some((_, option)) = given.into_iter().find(|(value, _)| value.is_some()) {
            let what = format!("{option} has no meaning with --profile gro, where a run is an IP packet below 64 KiB");
            return Err(usage(what, "leave it out, or choose another profile"));
        }
        let known = [Lists::Hashed, Lists::One];
        let lists = known.into_iter().find(|lists| self.cache.is_none_or(|cache| cache == lists.held()));
        let Some(lists) = lists else {
            let what = "--cache is 64 or 8 with --profile gro: Linux holds 8 packets in each of 8 lists";
            return Err(usage(what, "give 8 for a device without receive hash (veth, TAP), else leave it out"));
        };
        let base = gro::Rules::default();
        Ok(gro::Rules { window: self.window().unwrap_or(base.window), lists }.into())
    }

    /// The limits for the coalescer of a paper.
    ///
    /// # Errors
    /// A usage error if an option has no meaning with these rules, or the rules are not those of a paper.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        let profile = match self.profile {
            Choice::Rsc => Profile::Rsc,
            Choice::Ra => Profile::Ra,
            Choice::Gro => {
                return Err(usage("the memory of gro is fixed: there is nothing to vary", "choose rsc or ra"));
            }
        };
        if profile == Profile::Ra && self.buffer.is_some() {
            let what = "--buffer has no meaning with --profile ra, where a run is an IP packet of at most 65535 bytes";
            return Err(usage(what, "leave it out, or bound a run with --limit"));
        }
        let base = Limits::of(profile);
        Ok(Limits {
            cache: self.cache.and_then(NonZeroU32::new).unwrap_or(base.cache),
            buffer: self.buffer.unwrap_or(base.buffer),
            segments: self.limit.and_then(NonZeroU32::new).or(base.segments),
            window: self.window().unwrap_or(base.window),
            ..base
        })
    }

    fn window(&self) -> Option<Window> {
        match (self.window_packets, self.window_us) {
            (Some(frames), _) => NonZeroU32::new(frames).map(Window::Frames),
            (None, Some(us)) => NonZeroU64::new(us * 1000).map(Window::Time),
            (None, None) => None,
        }
    }

    /// The classifier of frames.
    pub fn classifier(&self) -> Classifier {
        Classifier::new(self.checksums(), self.inner)
    }

    /// How checksums are treated.
    pub fn checksums(&self) -> Checksums {
        match self.checksum {
            Checksum::Trust => Checksums::Trust,
            Checksum::Verify => Checksums::Verify,
        }
    }
}
