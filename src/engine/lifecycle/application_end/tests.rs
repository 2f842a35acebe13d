//! Removals that Ray delays or does not carry out.

use support::ray_serve::RayServe;

use super::*;
use crate::ray_serve::testing::{place, recipe};
use crate::ray_serve::{ServeWriters, application};

const NAME: &str = "model-pool.lab.r1";

fn program(ray: &RayServe, writers: &ServeWriters) -> ServeProgram {
    let recipe = recipe(&place(&ray.address()));
    ServeProgram {
        writer: writers.writer_for(&recipe.place),
        recipe: Box::new(recipe),
    }
}

async fn deploy(program: &ServeProgram) -> Result<(), ray_api::RayError> {
    let config = application::config(&program.recipe, NAME, "far", "").expect("JSON");
    program.writer.add(NAME, config).await
}

#[tokio::test]
async fn an_application_that_may_still_start_is_not_reported_as_gone() {
    let ray = RayServe::start();
    let program = program(&ray, &ServeWriters::default());
    ray.cut_off_next_write();
    assert!(deploy(&program).await.is_err());
    let within = Duration::from_secs(60);
    let short = Duration::from_millis(800);
    let removed = timeout(short, take_down(&program, NAME, within, true)).await;
    assert!(removed.is_err(), "it waits");
    ray.carry_out_late();
    assert_eq!(ray.names(), [NAME]);
    let removed = timeout(short * 4, take_down(&program, NAME, within, true)).await;
    assert!(removed.is_err(), "another write may have been cut off, too");
    assert!(ray.names().is_empty(), "removed again");
}

#[tokio::test]
async fn a_removal_continues_after_its_replica_stops_waiting() {
    let ray = RayServe::start();
    let writers = ServeWriters::default();
    let program = program(&ray, &writers);
    assert_eq!(deploy(&program).await, Ok(()));
    ray.set_down(true);
    take_down(&program, NAME, Duration::from_millis(100), true).await;
    assert_eq!(writers.left_over(), 1, "it may hold GPUs");
    ray.set_down(false);
    let cleaned = async {
        while writers.left_over() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = writers.keep_clean() => {}
        () = cleaned => {}
    }
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn an_application_that_was_never_deployed_is_gone_immediately() {
    let ray = RayServe::start();
    let program = program(&ray, &ServeWriters::default());
    ray.set_down(true);
    assert!(deploy(&program).await.is_err());
    let removed = take_down(&program, NAME, Duration::from_secs(60), true);
    assert!(timeout(Duration::from_secs(5), removed).await.is_ok());
}

#[tokio::test]
async fn a_failed_load_is_reported_immediately_even_if_its_application_may_still_start() {
    let ray = RayServe::start();
    let writers = ServeWriters::default();
    let program = program(&ray, &writers);
    ray.cut_off_next_write();
    assert!(deploy(&program).await.is_err());
    let within = Duration::from_secs(60);
    let removed = take_down(&program, NAME, within, false);
    let removed = timeout(Duration::from_secs(5), removed).await;
    assert!(removed.is_ok(), "its requests are answered");
    assert_eq!(writers.left_over(), 1, "it may come to hold GPUs");
    ray.carry_out_late();
    assert_eq!(ray.names(), [NAME]);
    let cleaned = async {
        while !ray.names().is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = writers.keep_clean() => {}
        () = cleaned => {}
    }
}

#[tokio::test]
async fn a_failed_load_waits_until_ray_serve_has_removed_its_application() {
    let ray = RayServe::start();
    let writers = ServeWriters::default();
    let program = program(&ray, &writers);
    assert_eq!(deploy(&program).await, Ok(()));
    take_down(&program, NAME, Duration::from_secs(60), false).await;
    assert_eq!(writers.left_over(), 0);
    assert!(ray.names().is_empty());
}
