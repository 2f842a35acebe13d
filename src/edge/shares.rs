//! A quantity that callers share, such as memory or workers. A caller holds at most half of what the others leave, waiting callers
//! take turns, and slowly arriving amounts may be evicted.

mod account;
mod books;
mod caller;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::account::Want;
use self::books::Books;
pub use self::caller::Caller;
use pool::Time;

/// Classes of amounts. Each class may use what the classes below it leave, and a reserve that they cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Large,
    Small,
    Admin,
}

pub(super) const CLASSES: usize = 3;

/// The total amount, and how callers share it.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Limit for each class together with the classes below it.
    pub most: [u64; CLASSES],
    /// A caller holds at most half of what the others leave. Otherwise waiting callers only take turns, which suits short work.
    pub(crate) is_divided: bool,
}

impl Capacity {
    /// A single class in which a caller gets half of what the others leave.
    pub fn divided(most: u64) -> Capacity {
        Capacity {
            most: [most; CLASSES],
            is_divided: true,
        }
    }

    /// A single class whose callers take turns.
    pub fn in_turns(most: u64) -> Capacity {
        Capacity {
            most: [most; CLASSES],
            is_divided: false,
        }
    }
}

#[derive(Debug)]
pub struct Shares {
    capacity: Capacity,
    books: Mutex<Books>,
}

/// An arriving amount was evicted for others.
#[derive(Clone, Copy, Debug)]
pub struct Evicted;

impl Shares {
    pub fn new(capacity: Capacity) -> Arc<Shares> {
        Arc::new(Shares {
            capacity,
            books: Mutex::default(),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an amount now, or returns `None`.
    pub fn try_hold(
        self: &Arc<Self>,
        caller: Caller,
        class: Class,
        amount: u64,
        now: Time,
    ) -> Option<Permit> {
        let want = Want::Hold { class, amount };
        let taken = self.books().take(&self.capacity, caller, want, now);
        taken.is_ok().then(|| self.permit(caller, class, amount))
    }

    /// Takes an amount, waiting for as long as necessary.
    pub async fn hold(
        self: &Arc<Self>,
        caller: Caller,
        class: Class,
        amount: u64,
        now: Time,
    ) -> Permit {
        self.wait(caller, Want::Hold { class, amount }, now).await;
        self.permit(caller, class, amount)
    }

    /// Registers an amount that begins to arrive. Its first part has already been received and is counted unchecked.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        caller: Caller,
        class: Class,
        first: u64,
        now: Time,
    ) -> Arrival {
        let evicted = CancellationToken::new();
        let number = self
            .books()
            .arrive(caller, class, first, now, evicted.clone());
        Arrival {
            shares: Arc::clone(self),
            caller,
            number,
            evicted,
        }
    }

    /// The total amount currently held.
    pub fn held(&self) -> u64 {
        self.books().held()
    }

    fn permit(self: &Arc<Self>, caller: Caller, class: Class, amount: u64) -> Permit {
        Permit {
            shares: Arc::clone(self),
            caller,
            class,
            amount,
        }
    }

    async fn wait(self: &Arc<Self>, caller: Caller, want: Want, now: Time) {
        let (granted, waits) = oneshot::channel();
        let place = match self
            .books()
            .take_or_wait(&self.capacity, caller, want, now, granted)
        {
            None => return,
            Some(place) => place,
        };
        let mut place = Place {
            shares: self,
            caller,
            place,
            want,
            is_over: false,
        };
        // The books drop the sender only after granting the request.
        let _ = waits.await;
        place.is_over = true;
    }
}

/// A place in the queue. Dropping it early removes it.
struct Place<'a> {
    shares: &'a Arc<Shares>,
    caller: Caller,
    place: u64,
    want: Want,
    is_over: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let shares = self.shares;
            shares
                .books()
                .leave(&shares.capacity, self.caller, self.place, self.want);
        }
    }
}

/// A caller's amount, returned when dropped.
#[derive(Debug)]
pub struct Permit {
    shares: Arc<Shares>,
    caller: Caller,
    class: Class,
    amount: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let shares = &self.shares;
        let mut books = shares.books();
        books.release(&shares.capacity, self.caller, self.class, self.amount);
    }
}

/// An amount that arrives in parts. Dropping it returns the parts received.
#[derive(Debug)]
pub(crate) struct Arrival {
    shares: Arc<Shares>,
    caller: Caller,
    number: u64,
    evicted: CancellationToken,
}

impl Arrival {
    /// Waits until the caller's own share has room for this much more. Does not affect other callers.
    pub async fn promise(&self, amount: u64, now: Time) -> Result<(), Evicted> {
        let number = self.number;
        self.wait(Want::Promise { number, amount }, now).await
    }

    /// Updates the amount received so far to `held` in total.
    pub(crate) async fn grow(&self, class: Class, held: u64, now: Time) -> Result<(), Evicted> {
        let number = self.number;
        let want = Want::Grow {
            number,
            class,
            held,
        };
        self.wait(want, now).await
    }

    async fn wait(&self, want: Want, now: Time) -> Result<(), Evicted> {
        tokio::select! {
            biased;
            () = self.evicted.cancelled() => Err(Evicted),
            () = self.shares.wait(self.caller, want, now) => Ok(()),
        }
    }

    /// Resolves once it has been evicted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Returns true if another request of the caller waits for the amount held or promised here.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.shares.books().has_waiting(self.caller)
    }

    /// Turns a completely received amount into a permit.
    pub fn complete(self) -> Result<Permit, Evicted> {
        let completed = self.shares.books().complete(self.caller, self.number);
        let (class, amount) = completed.ok_or(Evicted)?;
        Ok(self.shares.permit(self.caller, class, amount))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let shares = &self.shares;
        let mut books = shares.books();
        books.withdraw(&shares.capacity, self.caller, self.number);
    }
}

#[cfg(test)]
mod tests;
