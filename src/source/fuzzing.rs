//! Entry points for fuzzers: data from a repository, parsed as in a fetch. Sends nothing over the network.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::hub::Hub;
use super::listing::Listing;
use super::select::select;
use catalog::{Fetch, Manifest};

/// Parses a hub's listing and selects its files.
pub fn listing(body: &[u8], wanted: &Fetch) {
    static CLIENT: OnceLock<Option<reqwest::Client>> = OnceLock::new();
    let client = CLIENT.get_or_init(|| {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder().build().ok()
    });
    // Without certificate authorities no hub client can be created.
    let Some(http) = client.clone() else { return };
    let hub = Hub {
        http,
        endpoint: "https://hub.test".to_owned(),
        token: None,
        cache: PathBuf::new(),
    };
    let Ok(listed) = hub.listing("lab/model", body) else {
        return;
    };
    let listing = Listing::of_hub(hub, "lab/model", listed);
    if let Ok(chosen) = select(listing, wanted) {
        let plain = |path: &Path| {
            path.components()
                .all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        assert!(
            chosen.parts.iter().all(|part| plain(Path::new(&part.path))),
            "a file would lie outside of its folder"
        );
    }
}

/// Parses a manifest left behind by a fetch.
pub fn manifest(body: &[u8]) {
    let _ = serde_json::from_slice::<Manifest>(body);
}
