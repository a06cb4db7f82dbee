//! The environments that scenarios run in.

use thiscpu::{Registrar, Tier};

use super::seccomp::{self, Call};

/// How a process is set up before it first uses the library, and what it must then run on.
pub(crate) struct Env {
    pub(crate) name: &'static str,
    vars: &'static [(&'static str, &'static str)],
    /// System calls that fail from the start, and how.
    denied: &'static [(Call, i32)],
    tier: Option<Tier>,
    registrar: Option<Registrar>,
}

const fn env(name: &'static str, vars: &'static [(&'static str, &'static str)]) -> Env {
    Env { name, vars, denied: &[], tier: None, registrar: None }
}

const LIBC_OFF: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");

/// Whatever this machine runs on.
pub(crate) static DEFAULT: Env = env("default", &[]);
pub(crate) static CID: Env =
    Env { tier: Some(Tier::RseqCid), ..env("rseq_cid", &[("THISCPU_TIER", "rseq-cid")]) };
pub(crate) static CPU: Env =
    Env { tier: Some(Tier::RseqCpu), ..env("rseq_cpu", &[("THISCPU_TIER", "rseq-cpu")]) };
pub(crate) static ATOMIC: Env =
    Env { tier: Some(Tier::Atomic), ..env("atomic", &[("THISCPU_TIER", "atomic")]) };
/// The library registers each thread.
pub(crate) static SELF_REGISTERED: Env =
    Env { registrar: Some(Registrar::Thiscpu), ..env("self_registered", &[LIBC_OFF]) };
/// The library would register each thread, but may not.
static NO_RSEQ: Env = Env {
    tier: Some(Tier::Atomic),
    registrar: Some(Registrar::Nobody),
    denied: &[(Call::Rseq, libc::ENOSYS)],
    ..env("sandbox_no_rseq", &[LIBC_OFF])
};
static RSEQ_DENIED: Env =
    Env { denied: &[(Call::Rseq, libc::EPERM)], name: "sandbox_rseq_denied", ..NO_RSEQ };
static NO_MEMBARRIER: Env = Env {
    tier: Some(Tier::Atomic),
    denied: &[(Call::Membarrier, libc::ENOSYS)],
    ..env("sandbox_no_membarrier", &[])
};
static MEMBARRIER_DENIED: Env = Env {
    denied: &[(Call::Membarrier, libc::EPERM)],
    name: "sandbox_membarrier_denied",
    ..NO_MEMBARRIER
};
static BOTH_DENIED: Env = Env {
    denied: &[(Call::Rseq, libc::ENOSYS), (Call::Membarrier, libc::ENOSYS)],
    name: "sandbox_neither",
    ..NO_RSEQ
};

/// Each tier, and each way to come to it.
pub(crate) static TIERS: [&Env; 4] = [&CID, &CPU, &ATOMIC, &SELF_REGISTERED];
/// Where there are sections.
pub(crate) static WITH_SECTIONS: [&Env; 3] = [&CID, &CPU, &SELF_REGISTERED];
/// Those, and where a sandbox stands in the way from the start.
pub(crate) static TIERS_AND_SANDBOXES: [&Env; 9] = [
    &CID,
    &CPU,
    &ATOMIC,
    &SELF_REGISTERED,
    &NO_RSEQ,
    &RSEQ_DENIED,
    &NO_MEMBARRIER,
    &MEMBARRIER_DENIED,
    &BOTH_DENIED,
];
/// With sections and without: for what takes long.
pub(crate) static CID_AND_ATOMIC: [&Env; 2] = [&CID, &ATOMIC];
/// Where a thread that goes to another CPU has another lane.
pub(crate) static LANES_BY_CPU: [&Env; 2] = [&CPU, &ATOMIC];
/// One environment, for what there is in no other.
pub(crate) static ATOMIC_ONLY: [&Env; 1] = [&ATOMIC];
pub(crate) static SELF_REGISTERED_ONLY: [&Env; 1] = [&SELF_REGISTERED];
/// Whatever this machine runs on, alone.
pub(crate) static DEFAULT_ONLY: [&Env; 1] = [&DEFAULT];

/// The environments of a scenario that names `chosen`. With `THISCPU_TEST_SANDBOXES=all`, what holds in each
/// tier is tried in each sandbox too.
pub(crate) fn with_sandboxes(chosen: &'static [&'static Env]) -> &'static [&'static Env] {
    let in_each_tier = TIERS.iter().all(|env| chosen.iter().any(|other| other.name == env.name));
    match std::env::var("THISCPU_TEST_SANDBOXES").as_deref() {
        Ok("all") if in_each_tier => &TIERS_AND_SANDBOXES,
        Ok("all") | Err(_) => chosen,
        Ok(other) => panic!("THISCPU_TEST_SANDBOXES is all, or not set; not {other:?}"),
    }
}

/// The environment of that name.
pub(crate) fn find(name: &str) -> Option<&'static Env> {
    TIERS_AND_SANDBOXES.into_iter().chain([&DEFAULT]).find(|env| env.name == name)
}

impl Env {
    /// Sets a child up, before it starts.
    pub(crate) fn apply(&self, command: &mut std::process::Command) {
        command.env_remove("THISCPU_TIER").env_remove("GLIBC_TUNABLES");
        command.envs(self.vars.iter().copied());
    }

    /// Sets this process up, before it uses the library.
    pub(crate) fn enter(&self) {
        for &(call, errno) in self.denied {
            seccomp::deny(call, errno).expect("a filter that was tried before");
        }
    }

    /// Whether this process can be what the environment is meant to be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let report = thiscpu::system_info().map_err(|error| error.to_string())?;
        if self.registrar.is_some_and(|registrar| registrar != report.registrar) {
            return Err(format!(
                "{:?} registers threads: {:?}",
                report.registrar, report.obstacles
            ));
        }
        self.check_tier()
    }

    /// Whether this process runs on the tier that it is meant to run on.
    pub(crate) fn check_tier(&self) -> Result<(), String> {
        let tier = thiscpu::tier().map_err(|error| error.to_string())?;
        match self.tier {
            Some(meant) if meant != tier => Err(format!("runs on {tier}")),
            _ => Ok(()),
        }
    }
}
