//! Applications of an earlier process, in a Ray cluster that does not respond, or with streams of that process that continue.

use support::ray_serve::RayServe;

use super::*;
use crate::lifecycle::queries::PendingQueries;
use crate::ray_serve::testing::{place, recipe};

const NAME: &str = "model-pool.lab.r1";
const REPLICA: ReplicaId = ReplicaId(1);

/// A ready application of the model `far`.
fn deployed() -> RayServe {
    let ray = RayServe::start();
    let recipe = recipe(&place(&ray.address()));
    let config = application::config(&recipe, NAME, "far", "").expect("JSON");
    ray.deploy(NAME, config.get());
    ray
}

async fn start(
    writers: &ServeWriters,
    places: &[RayPlace],
    recipe_of: impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    is_streaming: bool,
) -> AdoptionResult {
    let mut resolved = AdoptionResult::default();
    let streams = |_| is_streaming;
    resolve_applications(writers, places, true, recipe_of, streams, &mut resolved).await;
    resolved
}

/// Queries each Ray cluster once that has not responded since the start.
async fn resolve_without_response(
    writers: &ServeWriters,
    keep: bool,
    recipe_of: impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    is_streaming: impl Fn(ReplicaId) -> bool,
) -> AdoptionResult {
    let mut looks = PendingQueries::new(writers, keep);
    let mut all = AdoptionResult::default();
    looks.begin(&recipe_of);
    while let Some(look) = looks.looked().await {
        let one = looks.judge(look, &recipe_of, &is_streaming).await;
        all.applications.extend(one.applications);
        all.others.extend(one.others);
    }
    all
}

fn names(resolved: &AdoptionResult) -> Vec<&str> {
    let applications = resolved.applications.iter();
    applications
        .map(|application| application.name.as_str())
        .collect()
}

/// Cleans until the Ray cluster holds no application of the pool.
async fn until_empty(writers: &ServeWriters, ray: &RayServe) {
    let empty = async {
        while !ray.names().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = writers.keep_clean() => {}
        () = empty => {}
    }
}

#[tokio::test]
async fn an_application_of_a_silent_ray_is_adopted_once_it_responds() {
    let ray = deployed();
    let writers = ServeWriters::default();
    let places = [place(&ray.address())];
    let recipe_of = |_: &str, _: &str| Ok(recipe(&places[0]));
    ray.set_down(true);
    let at_start = start(&writers, &places, recipe_of, false).await;
    assert!(names(&at_start).is_empty());
    assert_eq!(writers.without_response(), places);
    let still_down = resolve_without_response(&writers, true, recipe_of, |_| false).await;
    assert!(names(&still_down).is_empty());

    ray.set_down(false);
    let late = resolve_without_response(&writers, true, recipe_of, |_| false).await;
    assert_eq!(names(&late), [NAME]);
    assert!(late.others.is_empty(), "{:?}", late.others);
    assert!(writers.without_response().is_empty());
    assert!(ray.writes().is_empty());
}

#[tokio::test]
async fn a_ray_that_never_responds_delays_no_other() {
    let ray = deployed();
    // Accepts connections without responding.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (here, hanging) = (place(&ray.address()), place(&format!("http://{address}")));
    let writers = ServeWriters::default();
    let recipe_of = |_: &str, _: &str| Ok(recipe(&here));
    writers.expect_response(&hanging);
    writers.expect_response(&here);
    let mut looks = PendingQueries::new(&writers, true);
    looks.begin(&recipe_of);
    let look = looks.looked().await.expect("one has answered");
    let found = looks.judge(look, &recipe_of, &|_| false).await;
    assert_eq!(names(&found), [NAME]);
    assert_eq!(writers.without_response(), [hanging]);
}

#[tokio::test]
async fn an_application_visible_at_two_addresses_is_removed_with_one_record() {
    let ray = deployed();
    let second = ray.address().replace("127.0.0.1", "localhost");
    let writers = ServeWriters::default();
    let places = [place(&ray.address()), place(&second)];
    ray.set_down(true);
    let gone = |_: &str, _: &str| Err("the model is no longer in the catalogue".to_owned());
    start(&writers, &places, gone, false).await;
    ray.set_down(false);
    let late = resolve_without_response(&writers, true, gone, |_| false).await;
    assert_eq!(late.others.len(), 1, "{:?}", late.others);
    until_empty(&writers, &ray).await;
}

#[tokio::test]
async fn an_application_is_not_assessed_while_its_ray_is_restarting() {
    let ray = deployed();
    let writers = ServeWriters::default();
    let places = [place(&ray.address())];
    let recipe_of = |_: &str, _: &str| Ok(recipe(&places[0]));
    ray.set_down(true);
    start(&writers, &places, recipe_of, false).await;
    ray.set_down(false);
    ray.set_restarting(true);
    let early = resolve_without_response(&writers, true, recipe_of, |_| false).await;
    assert!(names(&early).is_empty() && early.others.is_empty());
    assert_eq!(writers.without_response(), places, "it is looked at again");
    assert!(writers.is_settling());
    assert_eq!(ray.names(), [NAME]);

    ray.set_restarting(false);
    let late = resolve_without_response(&writers, true, recipe_of, |_| false).await;
    assert_eq!(names(&late), [NAME]);
    assert!(writers.without_response().is_empty());
}

#[tokio::test]
async fn a_used_ray_that_refuses_is_unknown_and_an_unused_one_has_no_serve() {
    let ray = RayServe::start();
    let writers = ServeWriters::default();
    // Responds with 404.
    let places = [place(&format!("{}/none", ray.address()))];
    let recipe_of = |_: &str, _: &str| Ok(recipe(&places[0]));
    start(&writers, &places, recipe_of, false).await;
    assert!(writers.without_response().is_empty());

    let config = application::config(&recipe(&places[0]), NAME, "far", "").expect("JSON");
    writers.writer_for(&places[0]).own(NAME, config).await;
    start(&writers, &places, recipe_of, false).await;
    assert_eq!(writers.without_response(), places);
}

#[tokio::test]
async fn an_unneeded_application_is_removed_once_its_ray_responds() {
    let ray = deployed();
    let writers = ServeWriters::default();
    let places = [place(&ray.address())];
    let recipe_of = |_: &str, _: &str| Err("the model is no longer in the catalogue".to_owned());
    ray.set_down(true);
    start(&writers, &places, recipe_of, false).await;
    ray.set_down(false);
    let late = resolve_without_response(&writers, true, recipe_of, |_| false).await;
    assert_eq!(late.others.len(), 1);
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn an_adopted_application_that_is_given_up_is_removed() {
    let ray = deployed();
    let writers = ServeWriters::default();
    let places = [place(&ray.address())];
    let recipe_of = |_: &str, _: &str| Ok(recipe(&places[0]));
    let mut found = start(&writers, &places, recipe_of, false).await;
    let adopted = found.applications.remove(0);
    let found = adopted.give_up(&writers, "its model has got another replica", false);
    assert!(
        found
            .expect("it goes now")
            .reason
            .contains("another replica")
    );
    until_empty(&writers, &ray).await;
}

#[tokio::test]
async fn an_application_is_kept_while_an_earlier_process_may_stream_through_it() {
    let ray = deployed();
    let writers = ServeWriters::default();
    let places = [place(&ray.address())];
    let recipe_of = |_: &str, _: &str| Err("its model file says other arguments now".to_owned());
    let found = start(&writers, &places, recipe_of, true).await;
    assert!(found.others.is_empty(), "{:?}", found.others);
    writers
        .writer_for(&places[0])
        .sweep()
        .await
        .expect("nothing is left over");
    assert!(writers.release(|replica| replica == REPLICA).is_empty());
    assert_eq!(ray.names(), [NAME]);

    let released = writers.release(|_| false);
    assert_eq!(released.len(), 1);
    assert!(released[0].reason.contains("other arguments"));
    until_empty(&writers, &ray).await;
    assert!(writers.release(|_| false).is_empty());
}

#[tokio::test]
async fn an_application_of_a_model_in_a_silent_ray_is_kept_until_that_ray_responds() {
    let (ray, silent) = (deployed(), RayServe::start());
    let writers = ServeWriters::default();
    let places = [place(&ray.address()), place(&silent.address())];
    // The two addresses may belong to the same cluster.
    let recipe_of = |_: &str, _: &str| Ok(recipe(&places[1]));
    silent.set_down(true);
    let found = start(&writers, &places, recipe_of, false).await;
    assert!(names(&found).is_empty() && found.others.is_empty());
    writers
        .writer_for(&places[0])
        .sweep()
        .await
        .expect("nothing is left over");
    assert_eq!(ray.names(), [NAME]);
    // They are two clusters.
    silent.set_down(false);
    let late = resolve_without_response(&writers, true, recipe_of, |_| true).await;
    assert!(names(&late).is_empty());
    writers
        .writer_for(&places[0])
        .sweep()
        .await
        .expect("nothing is left over");
    assert!(writers.release(|_| true).is_empty());
    assert_eq!(ray.names(), [NAME], "an earlier process streams through it");
    let released = writers.release(|_| false);
    assert_eq!(released.len(), 1);
    assert!(released[0].reason.contains("another Ray"), "{released:?}");
    until_empty(&writers, &ray).await;
}

#[tokio::test]
async fn an_application_waiting_for_a_silent_ray_is_removed_once_its_model_no_longer_names_that_ray()
 {
    let (ray, silent) = (deployed(), RayServe::start());
    let writers = ServeWriters::default();
    let places = [place(&ray.address()), place(&silent.address())];
    let recipe_of = |_: &str, _: &str| Ok(recipe(&places[1]));
    silent.set_down(true);
    start(&writers, &places, recipe_of, false).await;
    resolve_without_response(&writers, true, recipe_of, |_| false).await;
    assert!(writers.release(|_| false).is_empty());

    let is_gone = |_: &str, _: &str| Err("the model is no longer in the catalogue".to_owned());
    resolve_without_response(&writers, true, is_gone, |_| false).await;
    let released = writers.release(|_| false);
    assert_eq!(released.len(), 1);
    assert!(released[0].reason.contains("catalogue"), "{released:?}");
    until_empty(&writers, &ray).await;
}

#[tokio::test]
async fn an_application_kept_for_streams_is_not_adopted_at_another_address_of_its_ray() {
    let ray = deployed();
    let writers = ServeWriters::default();
    let first = place(&ray.address());
    let unneeded = |_: &str, _: &str| Err("its model file is broken".to_owned());
    start(&writers, std::slice::from_ref(&first), unneeded, true).await;
    let second = [place(&ray.address().replace("127.0.0.1", "localhost"))];
    assert_ne!(second[0], first);
    let recipe_of = |_: &str, _: &str| Ok(recipe(&second[0]));
    let found = start(&writers, &second, recipe_of, true).await;
    assert!(names(&found).is_empty() && found.others.is_empty());
    assert_eq!(writers.release(|_| false).len(), 1, "it goes once");
    until_empty(&writers, &ray).await;
}
