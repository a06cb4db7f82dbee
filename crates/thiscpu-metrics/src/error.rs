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
    BadCharacter {
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
    BadLabel {
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
    LabelTwice {
        /// The metric they were given for.
        metric: String,
        /// The label.
        label: String,
    },
    /// A series that is registered already.
    Duplicate {
        /// Its name and labels.
        series: String,
    },
    /// A name that is another kind of metric already.
    OtherKind {
        /// The name.
        name: String,
        /// What it is.
        is: Kind,
        /// What it was to be.
        asked: Kind,
    },
    /// A metric that has another help text already.
    OtherHelp {
        /// Its name.
        name: String,
        /// The text it has.
        is: String,
        /// The text it was to have.
        asked: String,
    },
    /// A name that is also a line of a histogram.
    LineOfHistogram {
        /// The name.
        name: String,
        /// The histogram.
        histogram: String,
    },
    /// Two names of the facade that come to the same for Prometheus.
    SameForPrometheus {
        /// What they come to.
        name: String,
        /// The one that was there first.
        first: String,
        /// The one that was refused.
        second: String,
    },
    /// Bounds of buckets that cannot be.
    BadBuckets {
        /// Which metrics they were given for.
        of: String,
        /// What is wrong with them.
        why: &'static str,
    },
    /// A group that cannot be.
    BadGroup {
        /// Its name.
        group: String,
        /// What is wrong with it.
        why: String,
    },
    /// An address that somebody listens at already.
    AddressInUse {
        /// The address.
        address: String,
    },
    /// An address that cannot be listened at.
    BadAddress {
        /// The address.
        address: String,
        /// What the system says.
        why: String,
    },
    /// An address that the program may not listen at.
    NoPrivilege {
        /// The address.
        address: String,
        /// What the system says.
        why: String,
    },
    /// The endpoint's thread cannot be started.
    NoThread {
        /// What the system says.
        why: String,
    },
    /// A metric whose name OpenTelemetry does not have.
    NotForOpenTelemetry {
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
            Error::BadCharacter { name, character, position } => write!(
                f,
                "the metric name {name:?} cannot have {character:?} at position {position}: Prometheus has \
                 letters of ASCII, `_`, `:` and, but not first, digits"
            ),
            Error::EmptyLabel { metric } => {
                write!(f, "a label of {metric} has an empty name; give it one, or leave it out")
            }
            Error::BadLabel { metric, label, character, position } => write!(
                f,
                "the label {label:?} of {metric} cannot have {character:?} at position {position}: Prometheus has \
                 letters of ASCII, `_` and, but not first, digits"
            ),
            Error::ReservedLabel { metric, label } => write!(
                f,
                "{metric} cannot have the label {label:?}: `le` is what tells buckets apart, and names that begin \
                 with `__` are Prometheus' own; give it another name"
            ),
            Error::LabelTwice { metric, label } => {
                write!(f, "{metric} was given the label {label:?} twice; a label has one value")
            }
            Error::Duplicate { series } => write!(
                f,
                "{series} is registered already; keep the handle of the first registration, or give another label"
            ),
            Error::OtherKind { name, is, asked } => {
                write!(f, "{name} is a {is} already and cannot be a {asked} too; give one of them another name")
            }
            Error::OtherHelp { name, is, asked } => write!(
                f,
                "{name} has the help text {is:?} already and cannot have {asked:?} too; give all its series the same, \
                 or later ones none"
            ),
            Error::LineOfHistogram { name, histogram } => write!(
                f,
                "{name} and the histogram {histogram} would have lines of the same name; give one of them another name"
            ),
            Error::SameForPrometheus { name, first, second } => write!(
                f,
                "{second:?} is {name} for Prometheus, and so is {first:?}, which came first; give one of them \
                 another name"
            ),
            Error::BadBuckets { of, why } => write!(f, "the buckets of {of} cannot be: {why}"),
            Error::BadGroup { group, why } => write!(f, "the group {group:?} cannot be: {why}"),
            Error::AddressInUse { address } => write!(
                f,
                "somebody listens at {address} already; give another port (0 takes a free one), or end that program \
                 (`ss -ltnp` names it)"
            ),
            Error::BadAddress { address, why } => write!(
                f,
                "cannot listen at {address:?}: {why}; an address is one of this machine's with a port, such as \
                 127.0.0.1:9090"
            ),
            Error::NoPrivilege { address, why } => write!(
                f,
                "this program may not listen at {address}: {why}; ports below 1024 take a privilege as a rule \
                 (CAP_NET_BIND_SERVICE); give a higher one"
            ),
            Error::NoThread { why } => write!(f, "cannot start the endpoint's thread: {why}"),
            Error::NotForOpenTelemetry { name } => write!(
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
