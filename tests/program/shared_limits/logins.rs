//! Logins at the dashboard.

use serde_json::json;
use support::service::Pool;

use super::{assert_as_fast, median};

#[test]
fn b1_wrong_keys_at_the_login_do_not_delay_a_valid_key() {
    let pool = Pool::with_models(&[], "");
    let key = pool.admin_key();
    let login = || {
        let (status, response) = pool.call(None, "POST", "/llm/session", &json!({"key": key}));
        assert_eq!(status, 200, "{response}");
    };
    let before = median(login);
    std::thread::scope(|scope| {
        for nth in 0..30 {
            let pool = &pool;
            scope.spawn(move || {
                let wrong = json!({"key": format!("mp-wrong-{nth}")});
                let (status, _) = pool.call(None, "POST", "/llm/session", &wrong);
                assert!(matches!(status, 400 | 401 | 403 | 429), "{status}");
            });
        }
    });
    assert_as_fast("a login", before, median(login));
}
