//! The account that a request is counted for, with its limits. Its description is only formatted when needed, because most requests
//! have no limit.

use std::net::IpAddr;

use access::limits::{Bucket, place_of};
use config::Limit;
use pool::KeyId;

#[derive(Clone, Debug)]
pub struct Account {
    pub(crate) owner: Owner,
    pub limit: Limit,
}

#[derive(Clone, Debug)]
pub(crate) enum Owner {
    Key {
        id: KeyId,
        name: Box<str>,
    },
    /// With the id from single sign-on.
    Person {
        id: KeyId,
        name: Box<str>,
    },
    /// A client without a key.
    Address(Option<IpAddr>),
}

impl Account {
    /// A string that is equal on all gateways.
    pub fn id(&self) -> String {
        match &self.owner {
            Owner::Key { id, .. } => format!("key:{}", id.0),
            Owner::Person { id, .. } => format!("person:{:x}", id.0),
            Owner::Address(address) => format!("address:{}", place(*address)),
        }
    }

    /// A description for messages.
    pub fn description(&self) -> String {
        match &self.owner {
            Owner::Key { id, name } => format!("the key {id} ({name})"),
            Owner::Person { name, .. } => name.to_string(),
            Owner::Address(address) => {
                format!("the address {} (without a key)", place(*address))
            }
        }
    }

    /// The rate-limit bucket, if there is a limit.
    pub fn bucket(&self) -> Option<Bucket> {
        (!self.limit.is_none()).then(|| Bucket {
            id: self.id(),
            description: self.description(),
            limit: self.limit,
        })
    }
}

fn place(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "unknown".to_owned(), place_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_an_id_and_a_description_and_no_bucket_without_a_limit() {
        let (key, person) = ((KeyId(3), "k3"), (KeyId(31), "Ada"));
        for (owner, id, description) in [
            (
                Owner::Key {
                    id: key.0,
                    name: key.1.into(),
                },
                "key:3",
                format!("the key {} (k3)", KeyId(3)),
            ),
            (
                Owner::Person {
                    id: person.0,
                    name: person.1.into(),
                },
                "person:1f",
                "Ada".to_owned(),
            ),
            (
                Owner::Address(Some([127, 0, 0, 1].into())),
                "address:127.0.0.1",
                "the address 127.0.0.1 (without a key)".to_owned(),
            ),
            (
                Owner::Address(None),
                "address:unknown",
                "the address unknown (without a key)".to_owned(),
            ),
        ] {
            let mut account = Account {
                owner,
                limit: Limit::default(),
            };
            assert_eq!(account.id(), id);
            assert_eq!(account.description(), description);
            assert_eq!(account.bucket(), None);
            account.limit.requests_per_minute = Some(1);
            let bucket = account.bucket().unwrap();
            assert_eq!((bucket.id.as_str(), bucket.limit), (id, account.limit));
        }
    }
}
