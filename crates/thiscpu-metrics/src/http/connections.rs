//! The open connections, of which there is a largest number.
//!
//! A client that connects when there is no room displaces another one, so clients that send nothing
//! or read nothing keep nobody out:
//!
//! - Clients that have their answer and do not close go first, then those whose request is
//!   incomplete, from the oldest on. Then go those that read an answer, from the oldest scrape on.
//! - Clients that wait for a scrape are not displaced. It will end, so a new client may wait for it
//!   as well.
//!
//! Clients that read share the texts of scrapes. There is a largest number of texts, too: the first
//! client that gets a further one displaces those that still read the oldest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, futures::Notified};

/// The largest number of open connections.
///
/// Each is a file descriptor, of which many programs may have 1,024.
const CONNECTIONS_MAX: usize = 256;

/// The largest number of scrapes whose texts are kept for clients that read them.
const TEXTS_MAX: usize = 8;

/// All open connections of an endpoint.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Notified when a connection ends, and when it leaves `Phase::Scrape`.
    changed: Notify,
}

/// Displaced connections are not in here. They end as soon as their task runs.
#[derive(Default)]
struct Table {
    connections: u64,
    /// In the order in which they were accepted.
    open: Vec<Entry>,
}

struct Entry {
    number: u64,
    phase: Phase,
    displaced: Arc<Notify>,
}

/// The phase of a connection, in the order in which connections are displaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The answer is written. The client has to close.
    End,
    /// The request is incomplete.
    Request,
    /// The answer is being written: the scrape of this number.
    Answer(u64),
    /// A scrape is being taken.
    Scrape,
}

/// One connection, which is open until this is dropped.
pub(super) struct Connection {
    all: Connections,
    number: u64,
    displaced: Arc<Notify>,
}

impl Connections {
    /// Adds a connection. If there is no room, displaces one, or waits until one can be.
    pub(super) async fn add(&self) -> Connection {
        loop {
            if let Some(connection) = self.try_add() {
                return connection;
            }
            self.0.changed.notified().await;
        }
    }

    fn try_add(&self) -> Option<Connection> {
        let mut table = self.table();
        if table.open.len() >= CONNECTIONS_MAX && !table.displace() {
            return None;
        }
        table.connections += 1;
        let (number, displaced) = (table.connections, Arc::<Notify>::default());
        let entry = Entry { number, phase: Phase::Request, displaced: Arc::clone(&displaced) };
        table.open.push(entry);
        Some(Connection { all: self.clone(), number, displaced })
    }

    /// Displaces a connection, if one can be.
    pub(super) fn displace(&self) {
        self.table().displace();
    }

    /// Displaces all connections without a request, and waits for the answers of the others.
    pub(super) async fn finish(&self) {
        loop {
            let is_over = {
                let mut table = self.table();
                table.displace_all(|phase| phase <= Phase::Request);
                table.open.is_empty()
            };
            if is_over {
                return;
            }
            self.0.changed.notified().await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Displaces the connection that comes first, and returns whether there was one.
    fn displace(&mut self) -> bool {
        let can_be = |(_, entry): &(usize, &Entry)| entry.phase != Phase::Scrape;
        // The first of several equal ones, which is the oldest.
        let first = self.open.iter().enumerate().filter(can_be).min_by_key(|(_, each)| each.phase);
        let Some((at, _)) = first else { return false };
        self.open.remove(at).displace();
        true
    }

    fn displace_all(&mut self, is_displaced: impl Fn(Phase) -> bool) {
        self.open
            .extract_if(.., |entry| is_displaced(entry.phase))
            .for_each(|each| each.displace());
    }

    /// Displaces the clients that read the oldest scrapes, if there are too many.
    fn limit_texts(&mut self) {
        let mut scrapes: Vec<u64> = self
            .open
            .iter()
            .filter_map(|entry| match entry.phase {
                Phase::Answer(scrape) => Some(scrape),
                _ => None,
            })
            .collect();
        scrapes.sort_unstable();
        scrapes.dedup();
        if let Some(&last) = scrapes.iter().rev().nth(TEXTS_MAX) {
            self.displace_all(|phase| matches!(phase, Phase::Answer(scrape) if scrape <= last));
        }
    }
}

impl Entry {
    fn displace(&self) {
        // Keeps the permit, if the task does not wait yet.
        self.displaced.notify_one();
    }
}

impl Connection {
    /// Returns a future that is ready once this connection is displaced.
    pub(super) fn displaced(&self) -> Notified<'_> {
        self.displaced.notified()
    }

    /// Notes that the client waits for a scrape.
    pub(super) fn begin_scrape(&self) {
        drop(self.enter(Phase::Scrape));
    }

    /// Notes that the client gets the scrape of this number.
    pub(super) fn begin_answer(&self, scrape: u64) {
        self.enter(Phase::Answer(scrape)).limit_texts();
    }

    /// Notes that the answer is written.
    pub(super) fn end_answer(&self) {
        drop(self.enter(Phase::End));
    }

    fn enter(&self, phase: Phase) -> MutexGuard<'_, Table> {
        let mut table = self.all.table();
        if let Some(entry) = table.open.iter_mut().find(|entry| entry.number == self.number) {
            entry.phase = phase;
        }
        self.all.0.changed.notify_one();
        table
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.table().open.retain(|entry| entry.number != self.number);
        self.all.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn is_displaced(connection: &Connection) -> bool {
        let future = pin!(connection.displaced());
        future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn oldest_incomplete_request_is_displaced_first() {
        let all = Connections::default();
        let [reading, waiting] = [(); 2].map(|()| all.try_add().unwrap());
        reading.begin_answer(1);
        waiting.begin_scrape();
        let quiet: Vec<_> = (0..CONNECTIONS_MAX).map(|_| all.try_add().unwrap()).collect();
        assert!(!is_displaced(&reading) && !is_displaced(&waiting));
        assert!(quiet[..2].iter().all(is_displaced) && !quiet[2..].iter().any(is_displaced));
        reading.end_answer();
        let _another = all.try_add().unwrap();
        assert!(is_displaced(&reading) && !is_displaced(&quiet[2]));
    }

    #[test]
    fn clients_that_wait_for_a_scrape_are_not_displaced() {
        let all = Connections::default();
        let waiting: Vec<_> = (0..CONNECTIONS_MAX).map(|_| all.try_add().unwrap()).collect();
        waiting.iter().for_each(Connection::begin_scrape);
        assert!(all.try_add().is_none());
        waiting.iter().rev().for_each(|connection| connection.begin_answer(1));
        assert!(all.try_add().is_some());
        assert!(is_displaced(&waiting[0]) && !waiting[1..].iter().any(is_displaced));
    }

    #[test]
    fn clients_of_the_oldest_scrapes_are_displaced() {
        let all = Connections::default();
        let quiet = all.try_add().unwrap();
        let answer = |scrape| {
            let connection = all.try_add().unwrap();
            connection.begin_answer(scrape);
            connection
        };
        let scrapes = 1..=TEXTS_MAX as u64;
        let reading: Vec<_> = scrapes.clone().chain(scrapes).map(answer).collect();
        assert!(!reading.iter().any(is_displaced));
        let _another = answer(TEXTS_MAX as u64 + 1);
        let (first, others) = reading.split_first().unwrap();
        assert!(is_displaced(first) && is_displaced(&others[TEXTS_MAX - 1]));
        assert_eq!(others.iter().filter(|other| is_displaced(other)).count(), 0);
        assert!(!is_displaced(&quiet));
    }

    #[test]
    fn connections_that_ended_leave_room() {
        let all = Connections::default();
        let first = all.try_add().unwrap();
        for _ in 0..2 * CONNECTIONS_MAX {
            all.try_add().unwrap().begin_scrape();
        }
        assert!(!is_displaced(&first));
    }
}
