//! Requests to load and unload models, and the checks of their fields.

use utoipa::ToSchema;

use api_types::error::Failure;
use gateway::fields::{Fields, OrderFields, Strict};
use pool::{Priority, ReplicaId, Span};

/// Largest number of replicas per order.
const REPLICAS_MAX: u32 = 64;
/// Largest number of devices per replica.
const DEVICES_MAX: u32 = 1024;

/// Request to load a model, or to plan a load.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"model": "tiny-chat", "priority": 1, "keep_hot": "30m"}))]
pub struct LoadRequest {
    /// Name or alias of the model.
    #[schema(min_length = 1, example = "tiny-chat")]
    pub model: String,
    /// Sets the model's priority as an override (P1). The override is permanent unless `lease` is set.
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000)]
    pub priority: Option<Priority>,
    /// Desired number of replicas. Defaults to the current number, and at least one.
    #[schema(minimum = 1, maximum = 64)]
    pub replicas: Option<u32>,
    /// Number of devices per new replica, instead of the catalogue's value (M5).
    #[schema(minimum = 1, maximum = 1024)]
    pub gpus: Option<u32>,
    /// Time that a replica stays after its last request (L2), `1s` to `365d`. An override that is permanent unless `lease` is set.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "30m")]
    pub keep_hot: Option<Span>,
    /// Lifetime of the overrides, `1s` to `365d` from now. Keep-hot does not unload the model during the lease.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "2h")]
    pub lease: Option<Span>,
    /// Permits evicting replicas of equal priority and always-hot models (P4).
    #[schema(value_type = Option<bool>, default = false)]
    pub force: bool,
    /// Responds after the load has finished (true), or as soon as the order is stored (false).
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

impl Strict for LoadRequest {
    fn read(fields: &mut Fields) -> Result<LoadRequest, Failure> {
        Ok(LoadRequest {
            model: fields.needed_text("model", "\"tiny-chat\"; GET /admin/models lists them")?,
            priority: fields
                .integer("priority", 0..=Priority::MAX.0)?
                .map(Priority),
            replicas: fields.integer("replicas", 1..=REPLICAS_MAX)?,
            gpus: fields.integer("gpus", 1..=DEVICES_MAX)?,
            keep_hot: fields.length("keep_hot")?,
            lease: fields.length("lease")?,
            force: fields.flag("force")?.unwrap_or(false),
            wait: fields.flag("wait")?.unwrap_or(true),
        })
    }
}

/// Request to unload a model or a replica.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"model": "tiny-chat"}))]
pub struct UnloadRequest {
    #[schema(min_length = 1, example = "tiny-chat")]
    pub model: String,
    /// Id of a single replica, such as `r3`. Defaults to all replicas.
    #[schema(value_type = Option<String>, pattern = "^r[0-9]{1,18}$", example = "r3")]
    pub replica: Option<ReplicaId>,
    /// Cuts requests in flight instead of waiting for them.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
}

impl Strict for UnloadRequest {
    fn read(fields: &mut Fields) -> Result<UnloadRequest, Failure> {
        Ok(UnloadRequest {
            model: fields.needed_text("model", "\"tiny-chat\"")?,
            replica: fields.replica("replica")?,
            now: fields.flag("now")?.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(json: &str) -> Result<LoadRequest, Failure> {
        LoadRequest::read(&mut Fields::parse(json.as_bytes())?)
    }

    #[test]
    fn a_load_waits_and_does_not_force_by_default() {
        let request = load(r#"{"model":"m"}"#).unwrap();
        assert!(request.wait && !request.force);
        assert_eq!(
            (request.replicas, request.gpus, request.priority),
            (None, None, None)
        );
    }

    #[test]
    fn the_limits_of_load_fields_are_enforced() {
        let at_most =
            r#"{"model":"m","replicas":64,"gpus":1024,"priority":1000000,"keep_hot":"365d"}"#;
        assert!(load(at_most).is_ok());
        for field in [
            "\"replicas\":65",
            "\"replicas\":0",
            "\"gpus\":1025",
            "\"gpus\":0",
            "\"priority\":1000001",
        ] {
            let failure = load(&format!("{{\"model\":\"m\",{field}}}")).expect_err(field);
            let param = failure.body.error.param.unwrap();
            assert!(field.contains(&param), "{field} blamed on {param}");
        }
        assert_eq!(
            load("{}")
                .expect_err("no model")
                .body
                .error
                .param
                .as_deref(),
            Some("model")
        );
    }

    #[test]
    fn a_replica_is_named_in_the_form_of_responses() {
        let unload = |json: &str| UnloadRequest::read(&mut Fields::parse(json.as_bytes()).unwrap());
        assert_eq!(
            unload(r#"{"model":"m","replica":"r3"}"#).unwrap().replica,
            Some(ReplicaId(3))
        );
        for wrong in ["3", "rr3", "r", "r-1", "r99999999999999999999"] {
            let failure =
                unload(&format!(r#"{{"model":"m","replica":"{wrong}"}}"#)).expect_err(wrong);
            assert_eq!(failure.body.error.param.as_deref(), Some("replica"));
        }
    }
}
