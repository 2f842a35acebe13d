//! The class that a request wishes, and its limit of output: OpenAI's `service_tier`, vLLM's `priority`, and `max_tokens`.

use serde_json::value::RawValue;

use api_types::dto::class_name;
use api_types::error::Failure;
use dialect::body::Fields;
use pool::ServiceClass;

/// The figures of a request that decide about its share (F1, F5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceWish {
    pub class: ServiceClass,
    /// The response names the class, as the request has set `service_tier`.
    pub shows_tier: bool,
    /// The most tokens of output, for each sequence.
    pub output_max: Option<u32>,
}

impl ServiceWish {
    pub fn read(fields: &Fields<'_>) -> Result<ServiceWish, Failure> {
        let number = |name: &str| {
            let number = fields.get(name)?.get().trim().parse::<u64>().ok()?;
            Some(u32::try_from(number).unwrap_or(u32::MAX))
        };
        let tier = fields.get("service_tier").map(RawValue::get);
        let tier = tier.filter(|tier| *tier != "null");
        let class = match tier.and_then(class_of_tier) {
            Some(class) => class,
            None => match fields.get("priority") {
                Some(priority) => class_of_priority(priority)?,
                None => ServiceClass::Default,
            },
        };
        Ok(ServiceWish {
            class,
            shows_tier: tier.is_some(),
            output_max: number("max_completion_tokens").or_else(|| number("max_tokens")),
        })
    }
}

/// `None` for `auto` and for the tiers of other services.
fn class_of_tier(tier: &str) -> Option<ServiceClass> {
    match tier {
        "\"flex\"" => Some(ServiceClass::Flex),
        "\"default\"" => Some(ServiceClass::Default),
        "\"priority\"" => Some(ServiceClass::Priority),
        _ => None,
    }
}

/// The tier that a remote endpoint may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteTier {
    AsRequested,
    Instead(&'static str),
    /// A tier of another service, whose rank and price the pool does not know.
    Dropped,
}

/// The tier for a remote endpoint, which bills tiers. `tier` is the JSON text of the request, and `most` the caller's highest class.
pub(crate) fn remote_tier(tier: &str, most: ServiceClass) -> RemoteTier {
    let class = match (class_of_tier(tier), tier) {
        (Some(class), _) => class,
        (None, "null") => return RemoteTier::AsRequested,
        (None, "\"auto\"") => ServiceClass::Default,
        (None, _) if most == ServiceClass::Priority => return RemoteTier::AsRequested,
        (None, _) => return RemoteTier::Dropped,
    };
    if class <= most {
        RemoteTier::AsRequested
    } else {
        RemoteTier::Instead(class_name(most))
    }
}

/// As in vLLM, a smaller number comes first, and 0 is the default.
fn class_of_priority(value: &RawValue) -> Result<ServiceClass, Failure> {
    match value.get() {
        "null" => Ok(ServiceClass::Default),
        text => match text.parse::<i64>() {
            Ok(..=-1) => Ok(ServiceClass::Priority),
            Ok(0) => Ok(ServiceClass::Default),
            Ok(1..) => Ok(ServiceClass::Flex),
            Err(_) => Err(Failure::invalid(
                "priority".to_owned(),
                "`priority` must be an integer: more than 0 for work that can wait, 0 for the default, less for urgent work",
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(body: &str) -> ServiceWish {
        let fields = Fields::read(body.as_bytes()).expect("a body");
        ServiceWish::read(&fields).expect("a wish")
    }

    #[test]
    fn the_tier_wins_over_the_priority_and_auto_leaves_it() {
        for (body, class) in [
            ("{}", ServiceClass::Default),
            (r#"{"service_tier":"flex"}"#, ServiceClass::Flex),
            (
                r#"{"service_tier":"priority","priority":5}"#,
                ServiceClass::Priority,
            ),
            (
                r#"{"service_tier":"auto","priority":5}"#,
                ServiceClass::Flex,
            ),
            (r#"{"service_tier":"turbo"}"#, ServiceClass::Default),
            (r#"{"priority":-2}"#, ServiceClass::Priority),
            (r#"{"priority":0}"#, ServiceClass::Default),
            (r#"{"priority":null}"#, ServiceClass::Default),
        ] {
            assert_eq!(wish(body).class, class, "{body}");
        }
        assert!(wish(r#"{"service_tier":"auto"}"#).shows_tier);
        assert!(!wish(r#"{"service_tier":null}"#).shows_tier);
    }

    #[test]
    fn a_priority_that_is_not_an_integer_is_refused() {
        for value in ["\"high\"", "1.5", "{}", "99999999999999999999"] {
            let body = format!("{{\"priority\":{value}}}");
            let fields = Fields::read(body.as_bytes()).expect("a body");
            assert!(ServiceWish::read(&fields).is_err(), "{value}");
        }
    }

    #[test]
    fn a_remote_endpoint_gets_no_tier_above_the_class_of_the_caller() {
        use RemoteTier::{AsRequested, Dropped, Instead};
        use ServiceClass::{Default, Flex, Priority};
        for (tier, most, expected) in [
            ("\"priority\"", Priority, AsRequested),
            ("\"priority\"", Default, Instead("default")),
            ("\"priority\"", Flex, Instead("flex")),
            ("\"default\"", Flex, Instead("flex")),
            ("\"auto\"", Flex, Instead("flex")),
            ("\"auto\"", Default, AsRequested),
            ("\"flex\"", Flex, AsRequested),
            ("\"scale\"", Priority, AsRequested),
            ("\"scale\"", Default, Dropped),
            ("\"p\\u0072iority\"", Default, Dropped),
            ("null", Flex, AsRequested),
        ] {
            assert_eq!(remote_tier(tier, most), expected, "{tier} {most:?}");
        }
    }

    #[test]
    fn the_newer_limit_of_output_wins() {
        let body = r#"{"max_tokens":5,"max_completion_tokens":7}"#;
        assert_eq!(wish(body).output_max, Some(7));
        assert_eq!(wish(r#"{"max_tokens":-1}"#).output_max, None);
    }
}
