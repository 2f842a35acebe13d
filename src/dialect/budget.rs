//! Bounds the work of translating a request's grammars: a short grammar can expand to a large expression.

/// Budget of one grammar at one nesting depth.
pub(super) const OF_ONE: Budget = Budget {
    steps: 50_000,
    bytes: 1 << 20,
};
/// Budget of all grammars in a request, a few milliseconds of work.
pub(super) const OF_ALL: Budget = Budget {
    steps: 200_000,
    bytes: 2 << 20,
};

/// The remaining budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Items to write, counted at each use.
    pub steps: usize,
    /// Bytes to write, counted in each copy.
    pub bytes: usize,
}

/// The budget is exhausted.
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

    /// Subtracts the amount that a partial budget lost between `begin` and `end`.
    pub fn spend(&mut self, begin: Budget, end: Budget) {
        let spent = |begin: usize, end: usize| begin.saturating_sub(end);
        self.steps = self.steps.saturating_sub(spent(begin.steps, end.steps));
        self.bytes = self.bytes.saturating_sub(spent(begin.bytes, end.bytes));
    }

    /// The smaller of both budgets, component by component.
    pub fn at_most(self, other: Budget) -> Budget {
        Budget {
            steps: self.steps.min(other.steps),
            bytes: self.bytes.min(other.bytes),
        }
    }
}
