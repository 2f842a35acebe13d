//! Applications of Ray Serve over a takeover by the second controller (D4), which reads the addresses of the Rays from the store.

use support::family::stub;
use support::postgres::Server;
use support::ray_serve::RayServe;
use support::service::{Pool, wait_for};

use super::scene::{HERE, controller_with, health, serves_as_leader};

const NAME: &str = "model-pool.lab.r1";

fn in_ray(ray: &RayServe) -> (String, String) {
    let address = ray.address();
    let text = format!(
        "engine_config:\n  model_id: far\n  type: RayServeEngine\n  address: {address}\n  import_path: lab.app:build\n"
    );
    ("far.yaml".to_owned(), text)
}

fn asks_for_it(pool: &Pool) {
    let body = r#"{"model":"far","messages":[{"role":"user","content":"Hello"}]}"#;
    let (status, response) = pool.post("/v1/chat/completions", body);
    assert_eq!(status, 200, "{response}");
}

#[test]
fn d4_an_application_that_is_in_no_model_file_is_removed_by_the_other_controller() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let ray = RayServe::start();
    let env = [("MODEL_POOL__CLUSTER__NAME", "lab")];
    let mut first = controller_with(&[in_ray(&ray)], &url, HERE, &env);
    let second = controller_with(&[stub("a", &[])], &url, HERE, &env);
    assert_eq!(health(&second)["role"], "standby");
    asks_for_it(&first);
    assert_eq!(ray.names(), [NAME]);
    first.kill();
    wait_for("the second one to lead", || serves_as_leader(&second));
    wait_for("the application to be gone", || ray.names().is_empty());
}

#[test]
fn d4_an_application_is_adopted_by_the_new_leader_even_if_its_ray_was_silent_at_the_takeover() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let ray = RayServe::start();
    let env = [("MODEL_POOL__CLUSTER__NAME", "lab")];
    let models = [in_ray(&ray)];
    let mut first = controller_with(&models, &url, HERE, &env);
    let second = controller_with(&models, &url, HERE, &env);
    assert_eq!(health(&second)["role"], "standby");
    asks_for_it(&first);
    let writes = ray.writes().len();
    ray.set_down(true);
    first.kill();
    wait_for("the second one to serve", || {
        second.log().contains("Swagger UI at")
    });
    ray.set_down(false);
    wait_for("the application to be adopted", || {
        second.log().contains("which kept running without us")
    });
    asks_for_it(&second);
    assert_eq!(ray.writes().len(), writes, "{:?}", ray.writes());
}
