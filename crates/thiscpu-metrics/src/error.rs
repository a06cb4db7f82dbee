//! Errors, with messages that say what failed, why, and what to do.

use std::fmt;

/// An error of this crate. The call that returned it has changed nothing.
///
/// The message says what was requested, what exists, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The name of a metric is empty.
    EmptyName,
    /// The name of a metric has a character that Prometheus does not allow.
    InvalidName {
        /// The name.
        name: String,
        /// The first character that is not allowed.
        character: char,
        /// How many characters precede it.
        position: usize,
    },
    /// The name of a label is empty.
    EmptyLabel {
        /// The metric that the label was given for.
        metric: String,
    },
    /// The name of a label has a character that Prometheus does not allow.
    InvalidLabel {
        /// The metric that the label was given for.
        metric: String,
        /// The label.
        label: String,
        /// The first character that is not allowed.
        character: char,
        /// How many characters precede it.
        position: usize,
    },
    /// The name of a label is reserved, for the text format or for Prometheus.
    ReservedLabel {
        /// The metric that the label was given for.
        metric: String,
        /// The label.
        label: String,
    },
    /// Two labels have the same name.
    DuplicateLabel {
        /// The metric that the labels were given for.
        metric: String,
        /// The label.
        label: String,
    },
    /// The series is already registered.
    DuplicateSeries {
        /// Its name and labels.
        series: String,
    },
    /// A metric of that name has another kind.
    KindMismatch {
        /// The name.
        name: String,
        /// The kind of the registered metric.
        existing: Kind,
        /// The requested kind.
        requested: Kind,
    },
    /// The metric has another help text.
    HelpMismatch {
        /// The name of the metric.
        name: String,
        /// The registered text.
        existing: String,
        /// The requested text.
        requested: String,
    },
    /// A name is also that of lines of another metric, such as `x_sum` of a histogram `x`.
    ///
    /// A counter `x_total` has the heading `x` in OpenMetrics, and a line `x_created`.
    NameConflict {
        /// The name.
        name: String,
        /// The other metric.
        metric: String,
    },
    /// An exemplar is invalid.
    InvalidExemplar {
        /// Why it is invalid.
        reason: String,
    },
    /// Two names of the facade become the same Prometheus name.
    NameCollision {
        /// The Prometheus name.
        name: String,
        /// The name that was registered.
        first: String,
        /// The name that was rejected.
        second: String,
    },
    /// The bounds of buckets are invalid.
    InvalidBuckets {
        /// The metric, or the metrics, that the bounds were given for.
        metric: String,
        /// Why they are invalid.
        reason: &'static str,
    },
    /// A group is invalid.
    InvalidGroup {
        /// The group's name.
        group: String,
        /// Why it is invalid.
        reason: String,
    },
    /// Another program, or another endpoint, listens on the address.
    AddressInUse {
        /// The address.
        address: String,
    },
    /// The address is malformed or not one of this machine.
    InvalidAddress {
        /// The address.
        address: String,
        /// The system's message.
        reason: String,
    },
    /// The program may not listen on the address.
    PermissionDenied {
        /// The address.
        address: String,
        /// The system's message.
        reason: String,
    },
    /// The endpoint's thread could not be started.
    ThreadSpawn {
        /// The system's message.
        reason: String,
    },
    /// OpenTelemetry does not allow the metric's name.
    InvalidOpenTelemetryName {
        /// The name.
        name: String,
    },
    /// The program already has a recorder for the facade.
    RecorderInstalled,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Observations that are counted in buckets.
    Histogram,
}

impl Kind {
    /// Returns the kind's name in the text format.
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
            Error::EmptyName => f.write_str("invalid name: it is empty; name the metric"),
            Error::InvalidName { name, character, position } => write!(
                f,
                "invalid name {name:?}: {character:?} at position {position}; use ASCII letters, \
                 `_`, `:` and, except in front, digits"
            ),
            Error::EmptyLabel { metric } => {
                write!(f, "invalid label of {metric}: its name is empty; name it or leave it out")
            }
            Error::InvalidLabel { metric, label, character, position } => write!(
                f,
                "invalid label {label:?} of {metric}: {character:?} at position {position}; use \
                 ASCII letters, `_` and, except in front, digits"
            ),
            Error::ReservedLabel { metric, label } => write!(
                f,
                "reserved label {label:?} of {metric}: `le` distinguishes buckets, and names that \
                 begin with `__` are for Prometheus itself; use another name"
            ),
            Error::DuplicateLabel { metric, label } => write!(
                f,
                "duplicate label {label:?} of {metric}: a label has one value; remove one of the \
                 two"
            ),
            Error::DuplicateSeries { series } => write!(
                f,
                "duplicate series {series}: it is already registered; keep the handle of the \
                 first registration, or use other labels"
            ),
            Error::KindMismatch { name, existing, requested } => write!(
                f,
                "kind mismatch: {name} is a {existing}, so it cannot be a {requested}; rename one \
                 of the two"
            ),
            Error::HelpMismatch { name, existing, requested } => write!(
                f,
                "help text mismatch: {name} has {existing:?}, so it cannot have {requested:?}; use \
                 one text for all series of a name, or none for later ones"
            ),
            Error::NameConflict { name, metric } => write!(
                f,
                "name conflict: {name} and {metric} have lines or headings of the same name; \
                 rename one of the two"
            ),
            Error::InvalidExemplar { reason } => write!(f, "invalid exemplar: {reason}"),
            Error::NameCollision { name, first, second } => write!(
                f,
                "name collision: {second:?} becomes {name}, as the registered {first:?} does; \
                 rename one of the two"
            ),
            Error::InvalidBuckets { metric, reason } => {
                write!(f, "invalid buckets of {metric}: {reason}")
            }
            Error::InvalidGroup { group, reason } => write!(f, "invalid group {group:?}: {reason}"),
            Error::AddressInUse { address } => write!(
                f,
                "cannot listen on {address}: it is in use; choose another port (0 takes a free \
                 one), or stop the program that uses it (`ss -ltnp` names it)"
            ),
            Error::InvalidAddress { address, reason } => write!(
                f,
                "cannot listen on {address:?}: {reason}; use an address of this machine with a \
                 port, such as 127.0.0.1:9090"
            ),
            Error::PermissionDenied { address, reason } => write!(
                f,
                "cannot listen on {address}: {reason}; ports below 1024 usually require \
                 CAP_NET_BIND_SERVICE, so choose a higher one"
            ),
            Error::ThreadSpawn { reason } => {
                write!(f, "cannot start the endpoint's thread: {reason}")
            }
            Error::InvalidOpenTelemetryName { name } => write!(
                f,
                "no OpenTelemetry instrument for {name}: its names begin with a letter, have no \
                 `:` and at most 248 characters; rename the metric"
            ),
            Error::RecorderInstalled => f.write_str(
                "cannot install the recorder: the program already has one for the `metrics` \
                 facade; install this one first, or remove the other",
            ),
        }
    }
}
