//! What happens to a server's malloc: one act a file, and a line in the table.

mod churn;
mod connections;
mod forks;
mod idle;
mod large;
mod limits;
mod peak;
mod profiles;
mod signals;
mod survivors;
mod table;
mod vforks;

use fastrand::Rng;

use super::stage::Stage;
use crate::violation::Checked;

/// A part of a server's day, which lasts until its stage is over.
pub(super) struct Act {
    /// Its name in the report.
    pub(super) name: &'static str,
    /// Plays the act, and frees all blocks that it has allocated.
    pub(super) run: fn(&Stage<'_>, &mut Rng) -> Checked,
}

pub(super) const ACTS: [Act; 11] = [
    Act { name: "connections", run: connections::run },
    Act { name: "peak", run: peak::run },
    Act { name: "survivors", run: survivors::run },
    Act { name: "idle", run: idle::run },
    Act { name: "large", run: large::run },
    Act { name: "table", run: table::run },
    Act { name: "forks", run: forks::run },
    Act { name: "vforks", run: vforks::run },
    Act { name: "profiles", run: profiles::run },
    Act { name: "limits", run: limits::run },
    Act { name: "signals", run: signals::run },
];
