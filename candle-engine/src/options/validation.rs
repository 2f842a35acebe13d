//! Rejects invalid combinations of options before anything is loaded.

use super::{DeviceChoice, EngineOptions};
use crate::error::EngineError;

/// Upper bound for the number of adapters; larger values are typing errors.
const ADAPTERS_MAX: usize = 1024;

/// Upper bound for concurrency; larger values are typing errors.
const CONCURRENCY_MAX: usize = 1024;

/// A smaller context holds no useful prompt and completion.
const CONTEXT_TOKENS_MIN: usize = 16;

impl EngineOptions {
    /// Rejects invalid combinations before anything is loaded.
    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        let adapters = &self.adapters;
        if adapters.at_start.len() + adapters.at_run_time > ADAPTERS_MAX {
            return Err(EngineError::option(
                "max_loras",
                format!("more than {ADAPTERS_MAX} adapters; give fewer"),
            ));
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return Err(EngineError::option(
                "concurrency",
                format!(
                    "{} is not between 1 and {CONCURRENCY_MAX}",
                    self.concurrency
                ),
            ));
        }
        if self.context_tokens < CONTEXT_TOKENS_MIN {
            return Err(EngineError::option(
                "context_tokens",
                format!(
                    "{} is too small; give at least {CONTEXT_TOKENS_MIN}",
                    self.context_tokens
                ),
            ));
        }
        let budgets = &self.budgets;
        if budgets
            .input
            .is_some_and(|input| input == 0 || input >= self.context_tokens)
        {
            return Err(EngineError::option(
                "max_input_tokens",
                format!(
                    "{} is not between 1 and {}, which leaves room for an answer in a context of {}",
                    budgets.input.unwrap_or_default(),
                    self.context_tokens - 1,
                    self.context_tokens
                ),
            ));
        }
        if budgets.prefill == Some(0) {
            return Err(EngineError::option(
                "max_batch_prefill_tokens",
                "0 tokens are not a prompt; give at least 1, or leave it out",
            ));
        }
        if budgets
            .total
            .is_some_and(|total| total < self.context_tokens)
        {
            return Err(EngineError::option(
                "max_batch_total_tokens",
                format!(
                    "{} is less than the context of one request, {}",
                    budgets.total.unwrap_or_default(),
                    self.context_tokens
                ),
            ));
        }
        self.speculation.validate()?;
        self.check_devices()?;
        self.check_numbers()?;
        if self.threads == Some(0) {
            return Err(EngineError::option(
                "threads",
                "0 threads cannot compute; leave it out for one per core",
            ));
        }
        if self.tokenizer_workers == Some(0) {
            return Err(EngineError::option(
                "tokenizer_workers",
                "0 workers cannot read requests; leave it out for half the cores",
            ));
        }
        if self.model_name.is_empty() {
            return Err(EngineError::option(
                "model_name",
                "it is empty; give the name that requests will use",
            ));
        }
        Ok(())
    }

    /// Accepts a single device, or distinct GPUs of one kind, optionally followed by the CPU.
    fn check_devices(&self) -> Result<(), EngineError> {
        let wrong = |problem: String| Err(EngineError::option("device", problem));
        let Some((_, before)) = self.devices.split_last() else {
            return wrong("no device is named; give one, such as cpu".to_owned());
        };
        if before.contains(&DeviceChoice::Cpu) {
            return wrong("the CPU precedes another device; name it once, and last".to_owned());
        }
        let kinds = [
            self.devices
                .iter()
                .any(|device| matches!(device, DeviceChoice::Cuda(_))),
            self.devices
                .iter()
                .any(|device| matches!(device, DeviceChoice::Metal(_))),
        ];
        if kinds == [true, true] {
            return wrong(
                "CUDA and Metal devices cannot be mixed; name devices of one kind".to_owned(),
            );
        }
        let mut each = self.devices.iter().enumerate();
        match each.find(|(index, device)| self.devices[..*index].contains(device)) {
            Some((_, twice)) => wrong(format!("{twice} is named twice; name each device once")),
            None => Ok(()),
        }
    }
}
