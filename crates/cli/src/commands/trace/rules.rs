//! The options that choose how frames are coalesced.

use baton_analyse::asked::{Asked, CACHE_MAX, Kind, Refusal};
use baton_analyse::classifier::Classifier;
use baton_analyse::coalesce::{Checksums, Limits};
use baton_analyse::rules::Given;
use baton_apps::fail::usage;

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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CACHE_MAX.into()))]
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
        let Rules { cache, buffer, limit, window_packets, window_us, .. } = *self;
        let kind = match self.profile {
            Choice::Rsc => Kind::Rsc,
            Choice::Ra => Kind::Ra,
            Choice::Gro => Kind::Gro,
        };
        let asked = Asked { kind, cache, buffer, limit, window_packets, window_us };
        asked
            .given()
            .map_err(|Refusal { option, why, remedy }| usage(format!("--{} {why}", option.replace('_', "-")), remedy))
    }

    /// The limits for the coalescer of a paper.
    ///
    /// # Errors
    /// A usage error if an option has no meaning with these rules, or the rules are not those of a paper.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        match self.rules()? {
            Given::Paper(limits) => Ok(limits),
            Given::Gro(_) => Err(usage("the memory of gro is fixed: there is nothing to vary", "choose rsc or ra")),
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
