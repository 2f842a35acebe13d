//! Models of equal use in a replay: a request for any of them is served by the best of them, as the gateway does for a virtual model
//! with `any_of`.

use pool::Span;

/// The standing of a model for a request, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// A ready replica has a free seat.
    Free,
    /// All ready replicas are full; the least loaded one has this many requests.
    Full(u32),
    /// It is being loaded, or requests wait for it.
    Coming,
    /// A load takes this long.
    Cold(Span),
}

/// The best model of a set; the first of several equal ones. `None` for an empty set.
pub(super) fn best<M: Copy>(set: &[M], standing: impl Fn(M) -> Standing) -> Option<M> {
    set.iter().copied().min_by_key(|model| standing(*model))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{asks, scenario};
    use super::super::{Options, Report, run};
    use super::*;
    use alloc::vec::Vec;
    use pool::ModelId;

    #[test]
    fn a_ready_model_comes_before_a_load_and_the_first_of_equals_is_taken() {
        let standings = [
            Standing::Cold(Span::from_secs(1)),
            Standing::Coming,
            Standing::Full(3),
            Standing::Full(2),
            Standing::Free,
            Standing::Free,
        ];
        let of = |set: &[usize]| best(set, |nth| standings[nth]);
        assert_eq!(of(&[0, 1, 2, 3, 4, 5]), Some(4));
        assert_eq!(of(&[0, 1, 2, 3]), Some(3));
        assert_eq!(of(&[0, 1]), Some(1));
        assert_eq!(of(&[]), None);
    }

    /// Requests alternate between two models that exclude each other.
    fn alternating(any_of: Vec<Vec<ModelId>>) -> Report {
        let scenario = scenario(1, &[(8, 4), (8, 4)]);
        let list: Vec<(u64, u32)> = (0..40).map(|nth| (nth * 30, nth as u32 % 2)).collect();
        let options = Options {
            any_of,
            check_every: 1,
            ..Options::default()
        };
        run(&scenario, asks(&list), &options, &mut |_, _| {})
    }

    #[test]
    fn a_set_of_two_models_saves_the_swaps_between_them() {
        let apart = alternating(Vec::new());
        let together = alternating(vec![vec![ModelId(0), ModelId(1)]]);
        assert!(apart.broken.is_empty() && together.broken.is_empty());
        assert_eq!(together.all.served, apart.all.served);
        assert!(apart.all.loads > 10, "{}", apart.all.loads);
        assert_eq!(together.all.loads, 1);
        assert_eq!(together.all.requests, apart.all.requests);
    }
}
