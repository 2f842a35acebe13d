//! Refusals of callers: their key, their session, their limits, and how they read.

use std::fmt::Display;
use std::time::Duration;

use super::{ErrorKind, Failure};
use access::limits::LimitRefusal;
use pool::Span;
use store::KeyRecord;

const READS_ONLY: &str = "may view the pool, but not change it or use its models; ask an administrator for a key with the role user or admin";

const GROUP_ROUTES: &str = "administrators of a group may use /admin/keys, /admin/load and /admin/unload, and read /admin/groups and /admin/usage";

impl Failure {
    pub fn viewer(key: &KeyRecord) -> Failure {
        Failure::forbidden(
            "only_a_viewer",
            format!("the key {}… {READS_ONLY}", key.prefix),
        )
    }

    pub fn not_an_admin(key: &KeyRecord) -> Failure {
        Failure::forbidden(
            "not_an_admin",
            format!(
                "the key {}… may use models, but not administer the pool",
                key.prefix
            ),
        )
    }

    /// 403: the route requires another role than that of a group's administrator.
    pub fn only_a_group_admin(name: &str, required: &str) -> Failure {
        Failure::forbidden(
            "only_a_group_admin",
            format!(
                "{name} has the role group-admin, and this route requires the role {required}; {GROUP_ROUTES}"
            ),
        )
    }

    /// 403: a group's administrator without a group.
    pub fn group_admin_without_group(name: &str) -> Failure {
        Failure::forbidden(
            "no_group",
            format!(
                "{name} has the role group-admin, but belongs to no group that exists; an administrator can set the group (admin-client keys set ID --group NAME), or list the key or claim in groups.NAME"
            ),
        )
    }

    /// 403: a field that a group's administrator may not set.
    pub fn field_of_admins(field: &str, group: &str) -> Failure {
        let mut failure = Failure::forbidden(
            "only_a_group_admin",
            format!(
                "{field}: requires the role admin, and you have the role group-admin for {group}; omit {field}"
            ),
        );
        failure.body.error.param = Some(field.to_owned());
        failure
    }

    pub fn session_ended() -> Failure {
        let mut failure = Failure::unauthorized(
            "the session of this cookie has ended; log in again, or send a key as `Authorization: Bearer mp-…`",
        );
        failure.body.error.code = Some("session_ended");
        failure
    }

    pub fn unauthorized_key() -> Failure {
        let mut failure = Failure::unauthorized("this API key is unknown, expired or revoked");
        failure.body.error.code = Some("invalid_api_key");
        failure
    }

    /// 429 in OpenAI's format; 503 if the limits could not be counted.
    pub fn over_limit(refused: &LimitRefusal) -> Failure {
        use access::limits::Figure;
        let LimitRefusal::Over { figure, retry, .. } = refused else {
            return Failure::new(
                ErrorKind::Unavailable,
                "limits_unavailable",
                refused.to_string(),
            )
            .again_in(Span::from_secs(2));
        };
        let (kind, code) = match figure {
            Figure::Requests => ("requests", "rate_limit_exceeded"),
            Figure::Tokens => ("tokens", "rate_limit_exceeded"),
            Figure::Concurrent => ("requests", "concurrency_limit_exceeded"),
            Figure::Day => ("insufficient_quota", "insufficient_quota"),
        };
        let mut failure = Failure::new(ErrorKind::TooMany, code, refused.to_string());
        failure.body.error.kind = kind;
        failure.again_in(*retry)
    }

    /// 429 in OpenAI's format: the quota of the caller's group is used up until `day`.
    pub fn quota_spent(spent: &dyn Display, day: &str, left: Span) -> Failure {
        let message = format!(
            "{spent}; requests are served again from {day} on, or when an administrator raises the quota"
        );
        let mut failure = Failure::new(ErrorKind::TooMany, "group_quota_exceeded", message);
        failure.body.error.kind = "insufficient_quota";
        failure.again_in(left)
    }

    /// The error for a client that read too slowly. It may read it late.
    pub fn stalled_reader(after: Duration) -> Failure {
        Failure::new(
            ErrorKind::TooSlow,
            "reader_stalled",
            format!(
                "stream ended: the client read nothing for {} s while other requests waited for the model; read the response as it arrives",
                after.as_secs()
            ),
        )
    }
}
