//! The library's families: from `config.json` to a function that creates instances.

use super::falcon::Falcon;
use super::glm4::Glm4;
use super::gpt_big_code::GptBigCode;
use super::lfm2::Lfm2;
use super::library_model::{LibraryModel, Sequence, Sizes};
use super::mamba::Mamba;
use super::mamba2::Mamba2;
use super::marian::Marian;
use super::mpt::Mpt;
use super::olmo::Olmo;
use super::phi::Phi;
use super::seeing::{PaddleOcrVl, Qwen3Vl};
use super::stable_lm::StableLm;
use super::starcoder2::Starcoder2;
use super::t5::T5;
use crate::files::ConfigFields;
use candle_core::Result;
use candle_nn::VarBuilder;
use model_files::families::LibraryFamily;

/// Creates an instance on shared weights.
type Create = Box<dyn Fn(VarBuilder<'_>) -> Result<Box<dyn Sequence>> + Send>;

/// A model's description, before its weights are read.
pub(super) struct Description {
    pub sizes: Sizes,
    /// See [`LibraryModel::CONTINUES`].
    pub continues: bool,
    /// See [`LibraryModel::ENCODES`].
    pub encodes: bool,
    pub create: Create,
}

/// Describes a model of `family` for sequences of at most `context` tokens.
///
/// # Errors
/// The problem, without the file's name; see [`LibraryModel::describe`].
pub(super) fn describe(
    family: LibraryFamily,
    config: ConfigFields<'_>,
    context: usize,
) -> std::result::Result<Description, String> {
    let describe = match family {
        LibraryFamily::Falcon => with::<Falcon>,
        LibraryFamily::Glm4 => with::<Glm4>,
        LibraryFamily::GptBigCode => with::<GptBigCode>,
        LibraryFamily::Lfm2 => with::<Lfm2>,
        LibraryFamily::Mamba => with::<Mamba>,
        LibraryFamily::Mamba2 => with::<Mamba2>,
        LibraryFamily::Marian => with::<Marian>,
        LibraryFamily::Mpt => with::<Mpt>,
        LibraryFamily::Olmo => with::<Olmo>,
        LibraryFamily::PaddleOcrVl => with::<PaddleOcrVl>,
        LibraryFamily::Phi => with::<Phi>,
        LibraryFamily::Qwen3Vl => with::<Qwen3Vl>,
        LibraryFamily::StableLm => with::<StableLm>,
        LibraryFamily::Starcoder2 => with::<Starcoder2>,
        LibraryFamily::T5 => with::<T5>,
    };
    describe(config, context)
}

fn with<M: LibraryModel>(
    config: ConfigFields<'_>,
    context: usize,
) -> std::result::Result<Description, String> {
    let (config, sizes) = M::describe(config, context)?;
    Ok(Description {
        sizes,
        continues: M::CONTINUES && !M::ENCODES,
        encodes: M::ENCODES,
        create: Box::new(move |weights| Ok(Box::new(M::load(&config, weights)?))),
    })
}
