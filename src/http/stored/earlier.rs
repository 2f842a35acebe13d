//! What a request refers to, found before the request is read: the conversation that it continues and the items that
//! it names. Everything is bounded by what a body may have, and its memory is a body's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::http::StatusCode;

use super::service::{Link, StoredResponses};
use super::ticket::Ticket;
use super::wanted::{ITEMS_MAX, Wanted};
use crate::edge::Edge;
use crate::edge::record::Share;
use crate::error::Failure;
use store::{ChainBounds, ItemPlace, StoreFault, StoredItem};

const SEND_ALL: &str =
    "send the whole conversation in `input` (with \"store\": false clients do so)";
/// So much of an id is repeated.
const SHOWN_MAX: usize = 80;

/// Where one request's response is stored, and what it refers to.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    service: Arc<StoredResponses>,
    holder: Arc<str>,
    earlier: Arc<Earlier>,
    /// Of the memory for bodies, for what was found.
    _share: Share,
}

/// What a request refers to.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    pub previous: Option<String>,
    /// The items of the conversation that goes on, in their order, as JSON.
    pub conversation: Vec<String>,
    /// Items by their ids, as JSON.
    items: BTreeMap<String, String>,
    pub bytes: usize,
}

impl Earlier {
    pub fn item(&self, id: &str) -> Option<&str> {
        self.items.get(id).map(String::as_str)
    }
}

impl Desk {
    /// Finds what a request refers to. Other holders' responses look as if they did not exist.
    pub async fn open(
        service: &Arc<StoredResponses>,
        holder: &str,
        wanted: Wanted,
        bytes_max: u64,
        edge: &Edge,
    ) -> Result<Desk, Failure> {
        let mut desk = Desk {
            service: Arc::clone(service),
            holder: holder.into(),
            earlier: Arc::default(),
            _share: Share::default(),
        };
        if wanted == Wanted::default() {
            return Ok(desk);
        }
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let links = desk.links(wanted.previous.as_deref(), bytes_max).await?;
        let mut bytes: usize = links.iter().map(Link::bytes).sum();
        let named = desk.named(&wanted.items).await?;
        bytes += named.bytes(&wanted.items);
        if bytes > bytes_max {
            return Err(too_large(bytes_max));
        }
        desk._share = edge.more_memory(bytes).await?;
        let conversation = desk.conversation(links).await.map_err(unreadable)?;
        let items = desk.items(named).await.map_err(unreadable)?;
        desk.earlier = Arc::new(Earlier {
            previous: wanted.previous,
            conversation,
            items,
            bytes,
        });
        Ok(desk)
    }

    pub fn earlier(&self) -> &Earlier {
        &self.earlier
    }

    /// What is stored when the response is whole. `is_asked`: it is to survive a restart.
    pub fn ticket(&self, input: Vec<StoredItem>, is_requested: bool) -> Option<Ticket> {
        let previous = self.earlier.previous.clone();
        Ticket::new(&self.service, &self.holder, previous, input, is_requested)
    }

    /// Whether responses are kept if the request has no `store`.
    pub fn keeps_unasked(&self) -> bool {
        self.service.room().age.0 > 0
    }

    /// The conversation, the latest response first.
    async fn links(&self, previous: Option<&str>, bytes: usize) -> Result<Vec<Link>, Failure> {
        let Some(id) = previous else {
            return Ok(Vec::new());
        };
        // With the response that is to come there is one more.
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
                "the response {}, which an earlier one of {} continues, is no longer stored; {SEND_ALL}",
                shown(&missing),
                shown(id)
            ))),
            None if links.len() > responses => Err(Failure::invalid(
                "previous_response_id".to_owned(),
                format!(
                    "the conversation has {} responses already, the most that one may have; begin another one: {SEND_ALL}",
                    responses + 1
                ),
            )),
            None => Ok(links),
        }
    }

    /// The items of the conversation from its beginning.
    async fn conversation(&self, links: Vec<Link>) -> Result<Vec<String>, StoreFault> {
        let mut all = Vec::new();
        let mut links = links.into_iter().rev().peekable();
        while let Some(link) = links.next() {
            match link {
                Link::Memory(response) => {
                    let items = response.input.iter().chain(&response.output);
                    all.extend(items.map(|it| it.item.clone()));
                }
                // All that follow each other at once.
                Link::Disk(first) => {
                    let mut ids = vec![first.id];
                    while let Some(Link::Disk(_)) = links.peek() {
                        if let Some(Link::Disk(next)) = links.next() {
                            ids.push(next.id);
                        }
                    }
                    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let items = self.service.items_of(&self.holder, &ids).await?;
                    all.extend(items.into_iter().map(|it| it.item));
                }
            }
        }
        Ok(all)
    }

    /// Where the items with these ids are.
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

    async fn items(&self, named: Named) -> Result<BTreeMap<String, String>, StoreFault> {
        let there = self.service.items_at(&named.there).await?;
        let all = named.here.into_iter().chain(there);
        Ok(all.map(|it| (it.id, it.item)).collect())
    }
}

/// Items that were found, in memory or on disk.
#[derive(Default)]
struct Named {
    here: Vec<StoredItem>,
    there: Vec<ItemPlace>,
}

impl Named {
    /// What they take where each stands as often as it is named.
    fn bytes(&self, ids: &[String]) -> usize {
        let sizes: BTreeMap<&str, usize> = self
            .here
            .iter()
            .map(|it| (it.id.as_str(), it.item.len()))
            .chain(self.there.iter().map(|it| (it.id.as_str(), it.bytes)))
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
    let mut failure = Failure::new(
        StatusCode::NOT_FOUND,
        "invalid_request_error",
        "previous_response_not_found",
        message,
    );
    failure.body.error.param = Some("previous_response_id".to_owned());
    failure
}

/// The item of this id is not stored for this key.
pub(crate) fn no_item(id: &str) -> Failure {
    let message = format!(
        "no item {} is stored for this key: its response was deleted, is too old, or belongs to another key; send the item itself (with \"store\": false clients do so)",
        shown(id)
    );
    let mut failure = Failure::not_found(message);
    failure.body.error.param = Some("input".to_owned());
    failure
}

/// The answer to a reference where nothing is stored.
pub(crate) fn not_stored(field: &str) -> Failure {
    Failure::invalid(
        field.to_owned(),
        format!("`{field}`: responses are not stored here (state.responses.store); {SEND_ALL}"),
    )
}

fn too_large(bytes_max: usize) -> Failure {
    let message = format!(
        "what the request refers to has more than {bytes_max} bytes, the limit of a request (server.body_limit); begin another conversation"
    );
    Failure::invalid("previous_response_id".to_owned(), message)
}

pub(crate) fn unreadable(fault: StoreFault) -> Failure {
    tracing::error!(%fault, "stored responses cannot be read");
    Failure::internal("the stored responses cannot be read; the service's log says why")
}

fn shown(id: &str) -> String {
    id.chars().take(SHOWN_MAX).collect()
}
