//! Resolves the references of a request before the request is read: the continued conversation and the named items. Limits are the
//! same as for a body, and the memory counts as body memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use super::service::{Link, StoredResponses};
use super::ticket::{Continued, Ticket};
use super::wanted::{ITEMS_MAX, Wanted};
use crate::background_run::BackgroundRun;
use api_types::error::{ErrorKind, Failure};
use store::{ChainBounds, ItemPlace, StoreError, StoredItem};

const SEND_ALL: &str =
    "send the complete conversation in `input` (clients do this with \"store\": false)";
/// Longest part of an id repeated in messages.
const SHOWN_MAX: usize = 80;

/// The store for one request's response, with the items that the request refers to.
#[derive(Clone, Debug)]
pub struct Desk {
    service: Arc<StoredResponses>,
    holder: Arc<str>,
    earlier: Arc<Earlier>,
    /// The caller's claim to the memory for the resolved items.
    _memory: Option<Arc<dyn Debug + Send + Sync>>,
}

/// The resolved references of a request.
#[derive(Debug, Default)]
pub struct Earlier {
    pub previous: Option<String>,
    /// The named conversation.
    pub named: Option<String>,
    /// The items of the continued conversation, in order, as JSON.
    pub conversation: Vec<String>,
    /// Referenced items by id, as JSON.
    items: BTreeMap<String, String>,
    pub bytes: usize,
}

impl Earlier {
    pub fn item(&self, id: &str) -> Option<&str> {
        self.items.get(id).map(String::as_str)
    }
}

impl Desk {
    /// Resolves the references of a request. Responses of other holders are treated as missing. `claim` reserves the memory for the
    /// resolved items.
    pub async fn open<M, F>(
        service: &Arc<StoredResponses>,
        holder: &str,
        wanted: Wanted,
        bytes_max: u64,
        claim: impl FnOnce(usize) -> F,
    ) -> Result<Desk, Failure>
    where
        M: Debug + Send + Sync + 'static,
        F: Future<Output = Result<M, Failure>>,
    {
        let mut desk = Desk {
            service: Arc::clone(service),
            holder: holder.into(),
            earlier: Arc::default(),
            _memory: None,
        };
        if wanted == Wanted::default() {
            return Ok(desk);
        }
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let links = desk.links(wanted.previous.as_deref(), bytes_max).await?;
        let mut bytes: usize = links.iter().map(Link::bytes).sum();
        let named = desk.named(&wanted.items).await?;
        bytes += named.bytes(&wanted.items);
        // A request with both is refused when it is read.
        let by_name = wanted.conversation.filter(|_| wanted.previous.is_none());
        if let Some(id) = &by_name {
            let found = service.named(holder, id).await.map_err(unreadable)?;
            bytes += found.ok_or_else(|| no_conversation(id))?.bytes;
        }
        if bytes > bytes_max {
            return Err(too_large(bytes_max));
        }
        desk._memory = Some(Arc::new(claim(bytes).await?));
        let mut conversation = desk.conversation(links).await.map_err(unreadable)?;
        if let Some(id) = &by_name {
            let items = service.items_of_named(holder, id).await;
            let items = items.map_err(unreadable)?.into_iter();
            conversation.extend(items.map(|item| item.item));
        }
        let items = desk.items(named).await.map_err(unreadable)?;
        desk.earlier = Arc::new(Earlier {
            previous: wanted.previous,
            named: by_name,
            conversation,
            items,
            bytes,
        });
        Ok(desk)
    }

    pub fn earlier(&self) -> &Earlier {
        &self.earlier
    }

    /// A ticket for storing the response once it is complete. `is_requested`: the response must survive a restart.
    pub fn ticket(
        &self,
        input: Vec<StoredItem>,
        is_requested: bool,
        background: Option<Arc<BackgroundRun>>,
    ) -> Option<Ticket> {
        let continued = Continued {
            previous: self.earlier.previous.clone(),
            conversation: self.earlier.named.clone(),
        };
        let (service, holder) = (&self.service, &self.holder);
        Ticket::new(service, holder, continued, input, is_requested, background)
    }

    /// Returns true if responses are kept for requests without `store`.
    pub(crate) fn keeps_unasked(&self) -> bool {
        self.service.room().age.0 > 0
    }

    /// The responses of the conversation, latest first.
    async fn links(&self, previous: Option<&str>, bytes: usize) -> Result<Vec<Link>, Failure> {
        let Some(id) = previous else {
            return Ok(Vec::new());
        };
        // Leaves room for the new response.
        let responses = self.service.turns_max() - 1;
        let bounds = ChainBounds { responses, bytes };
        let found = self.service.conversation(&self.holder, id, bounds).await;
        let (links, missing) = found.map_err(unreadable)?;
        match missing {
            Some(missing) if links.is_empty() => Err(no_previous(format!(
                "no response {} is stored for this key: it was deleted, is too old, or belongs to another key; {SEND_ALL}",
                shown(&missing)
            ))),
            Some(missing) => Err(no_previous(format!(
                "the response {}, an earlier part of the conversation of {}, is no longer stored; {SEND_ALL}",
                shown(&missing),
                shown(id)
            ))),
            None if links.len() > responses => Err(Failure::invalid(
                "previous_response_id".to_owned(),
                format!(
                    "the conversation already has {} responses, which is the limit; start another one: {SEND_ALL}",
                    responses + 1
                ),
            )),
            None => Ok(links),
        }
    }

    /// The items of the conversation, oldest first.
    async fn conversation(&self, links: Vec<Link>) -> Result<Vec<String>, StoreError> {
        let mut all = Vec::new();
        let mut links = links.into_iter().rev().peekable();
        while let Some(link) = links.next() {
            match link {
                Link::Memory(response) => {
                    let items = response.input.iter().chain(&response.output);
                    all.extend(items.map(|item| item.item.clone()));
                }
                // Reads all consecutive responses on disk in one query.
                Link::Disk(first) => {
                    let mut ids = vec![first.id];
                    while let Some(Link::Disk(_)) = links.peek() {
                        if let Some(Link::Disk(next)) = links.next() {
                            ids.push(next.id);
                        }
                    }
                    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let items = self.service.items_of(&self.holder, &ids).await?;
                    all.extend(items.into_iter().map(|item| item.item));
                }
            }
        }
        Ok(all)
    }

    /// Locates the items with these ids.
    async fn named(&self, ids: &[String]) -> Result<Named, Failure> {
        if ids.len() > ITEMS_MAX {
            let message = format!("`input` has more than {ITEMS_MAX} items of type item_reference");
            return Err(Failure::invalid("input".to_owned(), message));
        }
        let now = self.service.now();
        let mut named = Named::default();
        let mut remaining = Vec::new();
        let mut known = BTreeSet::new();
        for id in ids.iter().filter(|id| known.insert(id.as_str())) {
            let found = self
                .service
                .with(|memory| memory.item(&self.holder, id, now));
            match found {
                Some(item) => named.here.push(item),
                None => remaining.push(id.as_str()),
            }
        }
        let places = self.service.places(&self.holder, &remaining).await;
        named.there = places.map_err(unreadable)?;
        let is_known = |id: &&str| named.there.iter().any(|place| place.id == **id);
        match remaining.iter().find(|id| !is_known(id)) {
            Some(id) => Err(no_item(id)),
            None => Ok(named),
        }
    }

    async fn items(&self, named: Named) -> Result<BTreeMap<String, String>, StoreError> {
        let there = self.service.items_at(&named.there).await?;
        let all = named.here.into_iter().chain(there);
        Ok(all.map(|item| (item.id, item.item)).collect())
    }
}

/// Items found in memory (`here`) or on disk (`there`).
#[derive(Default)]
struct Named {
    here: Vec<StoredItem>,
    there: Vec<ItemPlace>,
}

impl Named {
    /// The size of all items, counting each as often as it is referenced.
    fn bytes(&self, ids: &[String]) -> usize {
        let sizes: BTreeMap<&str, usize> = self
            .here
            .iter()
            .map(|item| (item.id.as_str(), item.item.len()))
            .chain(
                self.there
                    .iter()
                    .map(|place| (place.id.as_str(), place.bytes)),
            )
            .collect();
        ids.iter()
            .filter_map(|id| sizes.get(id.as_str()))
            .sum::<usize>()
    }
}

impl Link {
    fn bytes(&self) -> usize {
        match self {
            Link::Memory(response) => response.bytes(),
            Link::Disk(link) => link.bytes,
        }
    }
}

fn no_previous(message: String) -> Failure {
    let mut failure = Failure::new(ErrorKind::NotFound, "previous_response_not_found", message);
    failure.body.error.param = Some("previous_response_id".to_owned());
    failure
}

/// The error for an item that is not stored for this key.
pub fn no_item(id: &str) -> Failure {
    let message = format!(
        "no item {} is stored for this key: its response was deleted, is too old, or belongs to another key; send the item itself (clients do this with \"store\": false)",
        shown(id)
    );
    let mut failure = Failure::not_found(message);
    failure.body.error.param = Some("input".to_owned());
    failure
}

/// The error for a conversation that is not stored for this key.
pub fn no_conversation(id: &str) -> Failure {
    let message = format!(
        "no conversation {} is stored for this key: it was deleted, is too old, or belongs to another key; create one with POST /v1/conversations",
        shown(id)
    );
    let mut failure = Failure::new(ErrorKind::NotFound, "conversation_not_found", message);
    failure.body.error.param = Some("conversation".to_owned());
    failure
}

/// The error for a reference if nothing is stored.
pub fn not_stored(field: &str) -> Failure {
    Failure::invalid(
        field.to_owned(),
        format!(
            "`{field}`: this server does not store responses (state.responses.store); {SEND_ALL}"
        ),
    )
}

fn too_large(bytes_max: usize) -> Failure {
    let message = format!(
        "the items that the request refers to have more than {bytes_max} bytes, the limit of a request (server.body_limit); start another conversation"
    );
    Failure::invalid("previous_response_id".to_owned(), message)
}

pub fn unreadable(fault: StoreError) -> Failure {
    tracing::error!(%fault, "stored responses cannot be read");
    Failure::internal("the stored responses cannot be read; see the server log")
}

fn shown(id: &str) -> String {
    id.chars().take(SHOWN_MAX).collect()
}
