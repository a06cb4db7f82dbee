//! A page in Chromium.

use std::{
    ffi::OsStr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use headless_chrome::{
    Browser, LaunchOptions, Tab,
    protocol::cdp::{
        Emulation::{SetDeviceMetricsOverride, SetEmulatedMedia},
        Log, Network, Runtime,
        types::Event,
    },
};
use serde_json::{Value, json};
use url::Url;

/// The medium that shows a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Medium {
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
    pub(crate) is_print: bool,
}

impl Medium {
    pub(crate) const fn screen(width: u32, is_dark: bool) -> Self {
        Self { width, is_dark, is_print: false }
    }

    /// A4 with margins of 1 cm, printed by a reader with a dark screen.
    pub(crate) const PAPER: Self = Self { width: 718, is_dark: true, is_print: true };
}

const PATIENCE: Duration = Duration::from_secs(120);

/// An opened page, with its requests and messages.
pub(crate) struct Page {
    tab: Arc<Tab>,
    _browser: Browser,
    _turn: MutexGuard<'static, ()>,
    events: Arc<Mutex<(Vec<String>, Vec<String>)>>,
}

impl Page {
    /// Opens a file in a browser of its own, with an empty profile.
    pub(crate) fn open(file: &Path, medium: Medium) -> Self {
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let turn = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let browser = Browser::new(LaunchOptions {
            // A container may not allow a sandbox. The page is trusted.
            sandbox: false,
            // A busy machine is no failure.
            idle_browser_timeout: PATIENCE,
            args: ["--disable-quic", "--disable-component-update", "--hide-scrollbars"]
                .map(OsStr::new)
                .to_vec(),
            ..LaunchOptions::default()
        })
        .unwrap();
        let tab = browser.new_tab().unwrap();
        tab.set_default_timeout(PATIENCE);
        let events = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let seen = events.clone();
        let listener = move |event: &Event| {
            let (requests, complaints) = &mut *seen.lock().unwrap();
            match event {
                Event::NetworkRequestWillBeSent(it) => requests.push(it.params.request.url.clone()),
                Event::LogEntryAdded(it) => complaints.push(it.params.entry.text.clone()),
                Event::RuntimeConsoleAPICalled(it) => {
                    complaints.push(format!("{:?}", it.params.args));
                }
                Event::RuntimeExceptionThrown(it) => {
                    complaints.push(it.params.exception_details.text.clone());
                }
                _ => {}
            }
        };
        tab.add_event_listener(Arc::new(listener)).unwrap();
        let network: Network::Enable = serde_json::from_value(json!({})).unwrap();
        tab.call_method(network).unwrap();
        tab.call_method(Log::Enable(None)).unwrap();
        tab.call_method(Runtime::Enable(None)).unwrap();
        let page = Self { tab, _browser: browser, _turn: turn, events };
        page.show(medium);
        page.tab.navigate_to(&url(file)).unwrap().wait_until_navigated().unwrap();
        page
    }

    pub(crate) fn show(&self, medium: Medium) {
        let scheme = if medium.is_dark { "dark" } else { "light" };
        let media = json!({
            "media": if medium.is_print { "print" } else { "screen" },
            "features": [{ "name": "prefers-color-scheme", "value": scheme }],
        });
        let media: SetEmulatedMedia = serde_json::from_value(media).unwrap();
        self.tab.call_method(media).unwrap();
        let (width, mobile) = (medium.width, medium.width < 600);
        let metrics =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1.0, "mobile": mobile });
        let metrics: SetDeviceMetricsOverride = serde_json::from_value(metrics).unwrap();
        self.tab.call_method(metrics).unwrap();
    }

    /// Returns the visible parts of the page as JSON.
    pub(crate) fn look(&self) -> Value {
        let seen = self.tab.evaluate(include_str!("look.js"), false).unwrap();
        serde_json::from_str(seen.value.unwrap().as_str().unwrap()).unwrap()
    }

    pub(crate) fn print(&self) -> Vec<u8> {
        self.tab.print_to_pdf(None).unwrap()
    }

    /// Returns the requests of the page, and the messages of the browser.
    pub(crate) fn events(&self) -> (Vec<String>, Vec<String>) {
        self.events.lock().unwrap().clone()
    }
}

pub(crate) fn url(file: &Path) -> String {
    Url::from_file_path(file).unwrap().into()
}
