//! x
#[derive(Clone)]
pub struct Metrics;
impl Metrics {
    pub fn new(_: &crate::controller::Handle) -> Metrics {
        Metrics
    }
    pub fn request(&self, _m: &str, _c: u16) {}
    pub fn waited(&self, _m: &str, _d: std::time::Duration) {}
    pub fn first_token(&self, _m: &str, _d: std::time::Duration) {}
    pub fn tokens(&self, _m: &str, _p: u64, _c: u64) {}
}
pub(super) async fn render() -> &'static str {
    ""
}
