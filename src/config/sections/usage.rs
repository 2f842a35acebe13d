//! Section `usage`: the account of device time and its prices. The doc comments are the descriptions in the schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::Length;

const KEEP_MIN: Length = Length::from_secs(31 * 24 * 3600);
/// A larger price is a mistake.
const PRICE_MAX: f64 = 1e6;

/// The account of device time: who used the devices, and who held them idle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UsageSection {
    /// Retention of days, 31d or more.
    pub keep: Length,
    /// Prices that make the account a bill.
    pub prices: PricesSection,
}

impl Default for UsageSection {
    fn default() -> UsageSection {
        UsageSection {
            keep: Length::from_secs(400 * 24 * 3600),
            prices: PricesSection::default(),
        }
    }
}

/// Prices in any currency; null: no price.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PricesSection {
    /// The price of an hour of a device, 0 to 1000000.
    pub device_hour: Option<f64>,
    /// The price of a kilowatt-hour of the devices, 0 to 1000000.
    pub kilowatt_hour: Option<f64>,
}

impl PricesSection {
    pub fn is_set(&self) -> bool {
        *self != PricesSection::default()
    }
}

pub(crate) fn problems(usage: &UsageSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    if usage.keep < KEEP_MIN {
        let message = format!("is {}; allowed: 31d to 10 years", usage.keep);
        problems.push(Problem::new("usage.keep", message));
    }
    let prices = &usage.prices;
    for (key, price) in [
        ("device_hour", prices.device_hour),
        ("kilowatt_hour", prices.kilowatt_hour),
    ] {
        if let Some(price) = price
            && !(0.0..=PRICE_MAX).contains(&price)
        {
            let message = format!("is {price}; allowed: 0 to {PRICE_MAX}, or null for no price");
            problems.push(Problem::new(format!("usage.prices.{key}"), message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_and_absurd_prices_are_refused() {
        let mut usage = UsageSection::default();
        assert!(problems(&usage).is_empty());
        usage.prices.device_hour = Some(-1.0);
        usage.prices.kilowatt_hour = Some(f64::NAN);
        usage.keep = Length::from_secs(60);
        let found = problems(&usage)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[1].contains("usage.prices.device_hour") && found[1].contains("is -1"),
            "{found:?}"
        );
    }
}
