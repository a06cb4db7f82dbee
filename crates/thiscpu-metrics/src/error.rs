//! What can go wrong, in words a person can act on.

use std::fmt;

/// An error of this crate: what was asked, what there is, and what to do.
///
/// The call that returned it has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A metric's name without a character.
    EmptyName,
    /// A metric's name with a character that Prometheus does not have in them.
    InvalidName {
        /// The name.
        name: String,
        /// The first character that cannot be there.
        character: char,
        /// How many characters come before it.
        position: usize,
    },
    /// A label without a name.
    EmptyLabel {
        /// The metric it was given for.
        metric: String,
    },
    /// A label with a character that Prometheus does not have in them.
    InvalidLabel {
        /// The metric it was given for.
        metric: String,
        /// The label.
        label: String,
        /// The first character that cannot be there.
        character: char,
        /// How many characters come before it.
        position: usize,
    },
    /// A label that the text format, or Prometheus itself, needs.
    ReservedLabel {
        /// The metric it was given for.
        metric: String,
        /// The label.
        label: String,
    },
    /// Two labels of one name.
    DuplicateLabel {
        /// The metric they were given for.
        metric: String,
        /// The label.
        label: String,
    },
    /// A series that is registered already.
    DuplicateSeries {
        /// Its name and labels.
        series: String,
    },
    /// A name that is another kind of metric already.
    KindMismatch {
        /// The name.
        name: String,
        /// What it is.
        existing: Kind,
        /// What it was to be.
        requested: Kind,
    },
    /// A metric that has another help text already.
    HelpMismatch {
        /// Its name.
        name: String,
        /// The text it has.
        existing: String,
        /// The text it was to have.
        requested: String,
    },
    /// A name that is also a line of a histogram.
    HistogramNameConflict {
        /// The name.
        name: String,
        /// The histogram.
        histogram: String,
    },
    /// Two names of the facade that come to the same for Prometheus.
    NameCollision {
        /// What they come to.
        name: String,
        /// The one that was there first.
        first: String,
        /// The one that was refused.
        second: String,
    },
    /// Bounds of buckets that cannot be.
    InvalidBuckets {
        /// Which metrics they were given for.
        metric: String,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// A group that cannot be.
    InvalidGroup {
        /// Its name.
        group: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An address that somebody listens at already.
    AddressInUse {
        /// The address.
        address: String,
    },
    /// An address that cannot be listened at.
    InvalidAddress {
        /// The address.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// An address that the program may not listen at.
    PermissionDenied {
        /// The address.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The endpoint's thread cannot be started.
    ThreadSpawn {
        /// What the system says.
        reason: String,
    },
    /// A metric whose name OpenTelemetry does not have.
    InvalidOpenTelemetryName {
        /// The name.
        name: String,
    },
    /// The program has a recorder for the facade already.
    RecorderInstalled,
}

/// What kind of metric a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What only grows.
    Counter,
    /// What goes up and down.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

impl Kind {
    /// As the text format has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::EmptyName => f.write_str("a metric's name is empty; give it one"),
            Error::InvalidName { name, character, position } => write!(
                f,
                "the metric name {name:?} cannot have {character:?} at position {position}: Prometheus has \
                 letters of ASCII, `_`, `:` and, but not first, digits"
            ),
            Error::EmptyLabel { metric } => {
                write!(f, "a label of {metric} has an empty name; give it one, or leave it out")
            }
            Error::InvalidLabel { metric, label, character, position } => write!(
                f,
                "the label {label:?} of {metric} cannot have {character:?} at position {position}: Prometheus has \
                 letters of ASCII, `_` and, but not first, digits"
            ),
            Error::ReservedLabel { metric, label } => write!(
                f,
                "{metric} cannot have the label {label:?}: `le` is what tells buckets apart, and names that begin \
                 with `__` are Prometheus' own; give it another name"
            ),
            Error::DuplicateLabel { metric, label } => {
                write!(f, "{metric} was given the label {label:?} twice; a label has one value")
            }
            Error::DuplicateSeries { series } => write!(
                f,
                "{series} is registered already; keep the handle of the first registration, or give another label"
            ),
            Error::KindMismatch { name, existing, requested } => {
                write!(f, "{name} is a {existing} already and cannot be a {requested} too; give one of them another name")
            }
            Error::HelpMismatch { name, existing, requested } => write!(
                f,
                "{name} has the help text {existing:?} already and cannot have {requested:?} too; give all its series the same, \
                 or later ones none"
            ),
            Error::HistogramNameConflict { name, histogram } => write!(
                f,
                "{name} and the histogram {histogram} would have lines of the same name; give one of them another name"
            ),
            Error::NameCollision { name, first, second } => write!(
                f,
                "{second:?} is {name} for Prometheus, and so is {first:?}, which came first; give one of them \
                 another name"
            ),
            Error::InvalidBuckets { metric, reason } => write!(f, "the buckets of {metric} cannot be: {reason}"),
            Error::InvalidGroup { group, reason } => write!(f, "the group {group:?} cannot be: {reason}"),
            Error::AddressInUse { address } => write!(
                f,
                "somebody listens at {address} already; give another port (0 takes a free one), or end that program \
                 (`ss -ltnp` names it)"
            ),
            Error::InvalidAddress { address, reason } => write!(
                f,
                "cannot listen at {address:?}: {reason}; an address is one of this machine's with a port, such as \
                 127.0.0.1:9090"
            ),
            Error::PermissionDenied { address, reason } => write!(
                f,
                "this program may not listen at {address}: {reason}; ports below 1024 take a privilege as a rule \
                 (CAP_NET_BIND_SERVICE); give a higher one"
            ),
            Error::ThreadSpawn { reason } => write!(f, "cannot start the endpoint's thread: {reason}"),
            Error::InvalidOpenTelemetryName { name } => write!(
                f,
                "{name} cannot be observed by OpenTelemetry, whose names begin with a letter, have no `:`, and are \
                 not longer than 248 characters; give the metric such a name"
            ),
            Error::RecorderInstalled => f.write_str(
                "the `metrics` facade has a recorder already, and a program has one; install this one first, or not \
                 the other",
            ),
        }
    }
}
