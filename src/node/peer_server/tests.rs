//! Files that a node gives to others, and files that it never gives.

use super::*;
use http_body_util::BodyExt;
use node_link::sign_peer_token;

const MODEL: &str = "models--lab--small";

struct Scene {
    folder: tempfile::TempDir,
    server: PeerServer,
    blob: String,
}

impl Scene {
    /// A cache with a complete file of ten bytes and an incomplete file.
    fn new(at_once: u32) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let blob = "ab".repeat(32);
        let blobs = folder.path().join("cache").join(MODEL).join("blobs");
        std::fs::create_dir_all(&blobs).expect("a folder");
        std::fs::write(blobs.join(&blob), "0123456789").expect("written");
        let incomplete = format!("{}.incomplete", "cd".repeat(32));
        std::fs::write(blobs.join(incomplete), "01234").expect("written");
        std::fs::write(folder.path().join("secret"), "secret").expect("written");
        let outside = blobs.join("ef".repeat(32));
        std::os::unix::fs::symlink(folder.path().join("secret"), outside).expect("a link");
        let machine = Arc::new(Machine::default());
        machine.hear_beat(1000);
        let cache = folder.path().join("cache");
        let secret = RelaySecret::parse(&"s".repeat(64)).expect("a secret");
        Scene {
            server: PeerServer::new(Some(cache), secret, at_once, machine),
            folder,
            blob,
        }
    }

    fn token(&self) -> String {
        sign_peer_token(&self.server.secret, MODEL, 100_000, 1)
    }

    async fn get(&self, path: &str, token: &str, range: Option<&str>) -> Response<PeerBody> {
        let mut request = Request::get(path).header(AUTHORIZATION, format!("Bearer {token}"));
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        self.server.respond(&head, Arc::default()).await
    }

    async fn status(&self, path: &str, token: &str) -> u16 {
        self.get(path, token, None).await.status().as_u16()
    }
}

async fn text(response: Response<PeerBody>) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8_lossy(&body.to_bytes()).into_owned()
}

#[tokio::test]
async fn a_complete_file_is_served_from_any_offset() {
    let scene = Scene::new(2);
    let path = format!("/weights/{MODEL}/{}", scene.blob);
    let whole = scene.get(&path, &scene.token(), None).await;
    assert_eq!(whole.status(), StatusCode::OK);
    assert_eq!(whole.headers()[ETAG], format!("\"{}\"", scene.blob));
    assert_eq!(text(whole).await, "0123456789");
    let rest = scene.get(&path, &scene.token(), Some("bytes=4-")).await;
    assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(rest.headers()[CONTENT_RANGE], "bytes 4-9/10");
    assert_eq!(text(rest).await, "456789");
    let beyond = scene.get(&path, &scene.token(), Some("bytes=10-")).await;
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
}

#[tokio::test]
async fn without_a_token_for_the_model_nothing_is_served() {
    let scene = Scene::new(2);
    let path = format!("/weights/{MODEL}/{}", scene.blob);
    let secret = &scene.server.secret;
    let of_other = sign_peer_token(secret, "models--lab--other", 100_000, 1);
    let expired = sign_peer_token(secret, MODEL, 999, 1);
    let forged = sign_peer_token(
        &RelaySecret::parse(&"t".repeat(64)).expect("a secret"),
        MODEL,
        100_000,
        1,
    );
    for wrong in ["", "x", &of_other, &expired, &forged] {
        assert_eq!(scene.status(&path, wrong).await, 401, "{wrong}");
    }
    for path in ["/", "/weights/", "/llm/admin/models"] {
        assert_eq!(scene.status(path, &scene.token()).await, 401, "{path}");
    }
}

#[tokio::test]
async fn only_complete_files_inside_the_cache_are_served() {
    let scene = Scene::new(2);
    assert!(scene.folder.path().join("secret").is_file());
    let incomplete = format!("{}.incomplete", "cd".repeat(32));
    let (linked, absent) = ("ef".repeat(32), "cd".repeat(32));
    for name in [
        incomplete.as_str(),
        &linked,
        &absent,
        "../../../secret",
        "..%2F..%2F..%2Fsecret",
        "",
    ] {
        let path = format!("/weights/{MODEL}/{name}");
        assert_eq!(scene.status(&path, &scene.token()).await, 404, "{name}");
    }
    let odd = "models--..";
    let token = sign_peer_token(&scene.server.secret, "..", 100_000, 1);
    let path = format!("/weights/../{}", scene.blob);
    assert_ne!(scene.status(&path, &token).await, 200);
    assert_eq!(scene.server.path_of("..", &scene.blob), None);
    assert!(
        scene
            .server
            .path_of(odd, &scene.blob)
            .is_some_and(|path| !path.exists())
    );
}

#[tokio::test]
async fn concurrent_file_transfers_are_limited() {
    let scene = Scene::new(1);
    let path = format!("/weights/{MODEL}/{}", scene.blob);
    let first = scene.get(&path, &scene.token(), None).await;
    assert_eq!(
        (first.status(), scene.server.serving()),
        (StatusCode::OK, 1)
    );
    assert_eq!(scene.status(&path, &scene.token()).await, 503);
    drop(first);
    assert_eq!(scene.status(&path, &scene.token()).await, 200);
    assert_eq!(Scene::new(0).status(&path, &scene.token()).await, 503);
}
