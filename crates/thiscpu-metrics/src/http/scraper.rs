//! Scrapes for the endpoint's clients.
//!
//! One thread takes all scrapes. Requests that arrive during one share the next, so a request waits
//! for two scrapes at most, however many there are. The thread lasts as long as the endpoint: a
//! program that cannot start threads any more still answers.

use std::{
    io::{Error, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use flate2::{Compression, write::GzEncoder};
use hyper::body::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::THREAD_NAME;
use crate::media::Format;

/// Takes a scrape, and returns its text in each of these formats, in their order.
pub(super) type Source = Box<dyn FnMut(&[Format]) -> Vec<String> + Send>;

/// A form of the text of a scrape.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) format: Format,
    pub(super) is_gzip: bool,
}

/// A scrape, which several clients may have asked for.
#[derive(Clone, Default)]
pub(super) struct Scrape {
    pub(super) number: u64,
    /// `None` if the values could not be read.
    pub(super) text: Option<Bytes>,
}

struct Request {
    variant: Variant,
    answer: oneshot::Sender<Scrape>,
}

/// Asks for scrapes.
#[derive(Clone)]
pub(super) struct Scraper(mpsc::UnboundedSender<Request>);

impl Scraper {
    /// Starts a thread that scrapes the source, until all clones of the result are dropped.
    ///
    /// The receiver's channel closes when the thread ends.
    pub(super) fn start(mut source: Source) -> Result<(Scraper, oneshot::Receiver<()>), Error> {
        let (sender, requests) = mpsc::unbounded_channel();
        let (is_running, ended) = oneshot::channel();
        let run = move || {
            let _is_running: oneshot::Sender<()> = is_running;
            serve(&mut source, requests);
        };
        thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(run)?;
        Ok((Scraper(sender), ended))
    }

    /// Returns a scrape that begins after this call does.
    pub(super) async fn scrape(&self, variant: Variant) -> Scrape {
        let (answer, scrape) = oneshot::channel();
        // Without the thread, the sender is dropped, and there is no text.
        let _ = self.0.send(Request { variant, answer });
        scrape.await.unwrap_or_default()
    }
}

fn serve(source: &mut Source, mut requests: mpsc::UnboundedReceiver<Request>) {
    let (mut batch, mut number) = (Vec::new(), 0);
    while requests.blocking_recv_many(&mut batch, usize::MAX) > 0 {
        number += 1;
        let mut variants: Vec<Variant> = Vec::new();
        for Request { variant, .. } in &batch {
            if !variants.contains(variant) {
                variants.push(*variant);
            }
        }
        let texts = scrape(|| render(source, &variants));
        for Request { variant, answer } in batch.drain(..) {
            let text = texts.iter().find(|(of, _)| *of == variant).map(|(_, text)| text.clone());
            // A client that has gone needs no text.
            let _ = answer.send(Scrape { number, text });
        }
    }
}

/// Returns the texts of one scrape.
fn render(source: &mut Source, variants: &[Variant]) -> Vec<(Variant, Bytes)> {
    let wanted = |format: &Format| variants.iter().any(|variant| variant.format == *format);
    let formats: Vec<_> = [Format::Text, Format::OpenMetrics].into_iter().filter(wanted).collect();
    let texts: Vec<_> = source(&formats).into_iter().map(Bytes::from).collect();
    let text = |variant: Variant| {
        let (_, text) =
            formats.iter().zip(&texts).find(|(format, _)| **format == variant.format)?;
        Some((variant, if variant.is_gzip { gzip(text) } else { text.clone() }))
    };
    variants.iter().filter_map(|&variant| text(variant)).collect()
}

fn gzip(text: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.expect("writing to a vector does not fail").into()
}

/// Renders a scrape; returns nothing if it panics.
///
/// Reading sums panics if a sandbox denies fences. The client then gets status 500 instead of a
/// connection that is closed.
fn scrape<T: Default>(render: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(render)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrape_that_panics_has_no_text() {
        assert!(scrape(|| -> Vec<Variant> { panic!("deliberate") }).is_empty());
    }
}
