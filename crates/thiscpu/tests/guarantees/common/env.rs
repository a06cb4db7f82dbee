//! The environments in which scenarios run.

use thiscpu::{Registrar, Tier};

use super::seccomp::{self, Call};

/// The setup of a process before it first uses the library, and the tier it must get.
pub(crate) struct Env {
    pub(crate) name: &'static str,
    vars: &'static [(&'static str, &'static str)],
    /// System calls that fail from the start, with their errors.
    denied: &'static [(Call, i32)],
    tier: Option<Tier>,
    registrar: Option<Registrar>,
}

const fn env(name: &'static str, vars: &'static [(&'static str, &'static str)]) -> Env {
    Env { name, vars, denied: &[], tier: None, registrar: None }
}

const LIBC_OFF: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");

/// The machine's default tier.
pub(crate) static DEFAULT: Env = env("default", &[]);
pub(crate) static CID: Env =
    Env { tier: Some(Tier::RseqCid), ..env("rseq_cid", &[("THISCPU_TIER", "rseq-cid")]) };
pub(crate) static CPU: Env =
    Env { tier: Some(Tier::RseqCpu), ..env("rseq_cpu", &[("THISCPU_TIER", "rseq-cpu")]) };
pub(crate) static ATOMIC: Env =
    Env { tier: Some(Tier::Atomic), ..env("atomic", &[("THISCPU_TIER", "atomic")]) };
/// The library registers each thread, because libc does not.
pub(crate) static SELF_REGISTERED: Env =
    Env { registrar: Some(Registrar::Thiscpu), ..env("self_registered", &[LIBC_OFF]) };
/// No thread can be registered, by libc or by the library.
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

/// Each tier.
pub(crate) static TIERS: [&Env; 3] = [&CID, &CPU, &ATOMIC];
/// The tiers with sections.
pub(crate) static WITH_SECTIONS: [&Env; 2] = [&CID, &CPU];
/// Each tier, the library's own registration, and sandboxes that deny calls from the start.
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
/// One environment with sections and one without, for scenarios that take long.
pub(crate) static CID_AND_ATOMIC: [&Env; 2] = [&CID, &ATOMIC];
/// The environments in which a thread on another CPU always has another lane.
pub(crate) static LANES_BY_CPU: [&Env; 2] = [&CPU, &ATOMIC];
/// For scenarios that mean nothing elsewhere.
pub(crate) static ATOMIC_ONLY: [&Env; 1] = [&ATOMIC];
/// For scenarios about the library's own registration.
pub(crate) static SELF_REGISTERED_ONLY: [&Env; 1] = [&SELF_REGISTERED];
/// For scenarios that choose their tier themselves.
pub(crate) static DEFAULT_ONLY: [&Env; 1] = [&DEFAULT];

/// Returns the environments of a scenario that names `chosen`.
///
/// With `THISCPU_TEST_SANDBOXES=all`, scenarios for all tiers with sections also run with the
/// library's own registration, and those for all tiers in each sandbox.
pub(crate) fn select(chosen: &'static [&'static Env]) -> Vec<&'static Env> {
    let mut envs = chosen.to_vec();
    match std::env::var("THISCPU_TEST_SANDBOXES").as_deref() {
        Err(_) => return envs,
        Ok("all") => {}
        Ok(other) => panic!("invalid THISCPU_TEST_SANDBOXES={other:?}: set it to all, or unset it"),
    }
    let has = |env: &Env| chosen.iter().any(|other| other.name == env.name);
    let added: &[&Env] = match (WITH_SECTIONS.into_iter().all(has), has(&ATOMIC)) {
        (true, true) => &TIERS_AND_SANDBOXES,
        (true, false) => &SELF_REGISTERED_ONLY,
        (false, _) => &[],
    };
    envs.extend(added.iter().filter(|env| !has(env)));
    envs
}

/// Returns the environment of that name.
pub(crate) fn find(name: &str) -> Option<&'static Env> {
    TIERS_AND_SANDBOXES.into_iter().chain([&DEFAULT]).find(|env| env.name == name)
}

impl Env {
    /// Sets up a child before it starts.
    pub(crate) fn apply(&self, command: &mut std::process::Command) {
        command.env_remove("THISCPU_TIER").env_remove("GLIBC_TUNABLES");
        command.envs(self.vars.iter().copied());
    }

    /// Sets up this process before it uses the library.
    pub(crate) fn enter(&self) {
        for &(call, errno) in self.denied {
            seccomp::deny(call, errno).expect("a seccomp filter");
        }
    }

    /// Checks that this process has the environment's tier and registrar.
    pub(crate) fn check(&self) -> Result<(), String> {
        let report = thiscpu::system_info().map_err(|error| error.to_string())?;
        if self.registrar.is_some_and(|registrar| registrar != report.registrar) {
            return Err(format!("the registrar is {:?}: {:?}", report.registrar, report.obstacles));
        }
        self.check_tier()
    }

    /// Checks that this process has the environment's tier.
    pub(crate) fn check_tier(&self) -> Result<(), String> {
        let tier = thiscpu::tier().map_err(|error| error.to_string())?;
        match self.tier {
            Some(expected) if expected != tier => Err(format!("the tier is {tier}")),
            _ => Ok(()),
        }
    }
}
