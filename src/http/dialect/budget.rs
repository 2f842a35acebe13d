//! How much is done for the grammars of one request: a short one can stand for very much. It knows no grammar.

/// For one grammar at one depth.
pub(super) const OF_ONE: Budget = Budget {
    steps: 50_000,
    bytes: 1 << 20,
};
/// For all grammars of a request: some milliseconds.
pub(super) const OF_ALL: Budget = Budget {
    steps: 200_000,
    bytes: 2 << 20,
};

/// What may still be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Items that are written, each as often as it is used.
    pub steps: usize,
    /// Bytes that are written, in all their copies.
    pub bytes: usize,
}

/// Nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

impl Budget {
    pub fn step(&mut self) -> Result<(), Spent> {
        self.steps = self.steps.checked_sub(1).ok_or(Spent)?;
        Ok(())
    }

    pub fn write(&mut self, bytes: usize) -> Result<(), Spent> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Spent)?;
        Ok(())
    }

    /// Takes away what a part of this budget had at its beginning and has not at its end.
    pub fn spend(&mut self, begin: Budget, end: Budget) {
        let spent = |begin: usize, end: usize| begin.saturating_sub(end);
        self.steps = self.steps.saturating_sub(spent(begin.steps, end.steps));
        self.bytes = self.bytes.saturating_sub(spent(begin.bytes, end.bytes));
    }

    /// A part of it.
    pub fn at_most(self, other: Budget) -> Budget {
        Budget {
            steps: self.steps.min(other.steps),
            bytes: self.bytes.min(other.bytes),
        }
    }
}
