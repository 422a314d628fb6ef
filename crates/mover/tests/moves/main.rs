//! Two kernels, with a mover next to one of them.

mod gaps;
mod links;
mod matrix;
mod path_mtu;
mod vlan;
mod way_back;
mod world;
