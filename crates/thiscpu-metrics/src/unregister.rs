//! Removal of series from a registry.

use crate::{
    handle::Handle,
    name::{self, Labels},
    registry::Registry,
};

impl Registry {
    /// Removes the series of a handle, and returns whether the registry had it.
    ///
    /// No increment after the removal is lost. The removal discards what no scrape has shown yet;
    /// scrape first if that matters. If there are no other handles, the series is freed, with its
    /// memory. Otherwise scrapes leave it out until another handle changes its value. Then it is
    /// shown again, with its old value and all increments, and stays until it is removed again or
    /// idle. Once the last handle is dropped, the next scrape frees it. Registering the series
    /// again while handles exist shows it again as well.
    ///
    /// Waits for a current scrape. Costs one fence.
    ///
    /// ```
    /// let registry = thiscpu_metrics::Registry::new();
    /// let requests = registry.counter("requests_total", "", &[("tenant", "acme")])?;
    /// requests.increment(1);
    /// assert!(registry.remove_handle(requests));
    /// assert_eq!(registry.render(), "");
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::sum`].
    pub fn remove_handle(&self, handle: impl Handle) -> bool {
        let id = handle.id();
        drop(handle);
        self.remove_all(&[id]) == 1
    }

    /// Removes the series of this name and these labels, and returns whether it existed.
    ///
    /// Increments, memory, costs and panics are as for [`remove_handle`](Registry::remove_handle).
    /// Series of registered structures can be removed, too, except those of
    /// [`TopAccounts`](crate::TopAccounts).
    pub fn remove(&self, name: &str, labels: Labels<'_>) -> bool {
        let of = |name: &str| name::series(name, labels).ok();
        let all = [of(name), of(&name::of_counter(name))];
        let id = {
            let state = self.state();
            let known = all.iter().flatten().find_map(|series| state.series.get(series));
            known.copied()
        };
        id.is_some_and(|id| self.remove_all(&[id]) == 1)
    }

    /// Removes all series that have these labels, and perhaps others; returns how many.
    ///
    /// For example all series of a tenant. No labels remove everything that can be removed. Each
    /// costs what [`remove_handle`](Registry::remove_handle) does, except that they share a fence.
    ///
    /// ```
    /// let registry = thiscpu_metrics::Registry::new();
    /// for tenant in ["acme", "other"] {
    ///     registry.counter("requests_total", "", &[("tenant", tenant), ("method", "get")])?;
    ///     registry.gauge("sessions", "", &[("tenant", tenant)])?;
    /// }
    /// assert_eq!(registry.remove_matching(&[("tenant", "acme")]), 2);
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    pub fn remove_matching(&self, labels: Labels<'_>) -> usize {
        let wanted: Vec<String> = labels
            .iter()
            .map(|(label, value)| {
                let mut text = String::new();
                name::push_label(label, value, &mut text);
                text
            })
            .collect();
        let fits = |text: &str| wanted.iter().all(|label| has_label(text, label));
        let ids = self.state().ids_by_labels(fits);
        self.remove_all(&ids)
    }

    /// Removes those of the series that are shown, and returns how many.
    fn remove_all(&self, ids: &[u64]) -> usize {
        let mut state = self.state();
        let mut ids: Vec<u64> = ids.iter().copied().filter(|&id| state.is_shown(id)).collect();
        // As everywhere under the lock, no hash table is created: that can be a cancellation point.
        ids.sort_unstable();
        self.handles().evict(&ids);
        state.remove(&ids);
        self.handles().retry_rejected(&mut state);
        ids.len()
    }
}

/// Returns whether a label with its value is among labels, as they are written in braces.
fn has_label(labels: &str, label: &str) -> bool {
    // Quotes in values are escaped, so a label is found nowhere inside of a value.
    labels.match_indices(label).any(|(at, _)| {
        let (before, after) = (&labels[..at], &labels[at + label.len()..]);
        (before.is_empty() || before.ends_with(',')) && (after.is_empty() || after.starts_with(','))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_whole_only() {
        let labels = r#"ax="1",b=",x=\"2\",",x="3""#;
        for (label, wanted) in
            [(r#"ax="1""#, true), (r#"x="1""#, false), (r#"x="2""#, false), (r#"x="3""#, true)]
        {
            assert_eq!(has_label(labels, label), wanted, "{label}");
        }
    }
}
