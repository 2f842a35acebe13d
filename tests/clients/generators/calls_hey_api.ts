// Calls chat, embeddings and models with the client that @hey-api/openapi-ts made.
import { createChatCompletion, createEmbeddings, listModels } from './hey-api/index';
import { client } from './hey-api/client.gen';

client.setConfig({ baseUrl: process.env.MODEL_POOL_URL + '/llm', auth: () => process.env.MODEL_POOL_KEY! });

async function main() {
  const listed = await listModels({ throwOnError: true });
  const models = (listed.data as { data: { id: string }[] }).data;
  if (!models.some((model) => model.id === 'tiny-guide')) throw new Error(JSON.stringify(models));
  const body = { model: 'tiny-guide', max_tokens: 4, messages: [{ role: 'user' as const, content: 'What is a priority?' }] };
  const chat: any = (await createChatCompletion({ body, throwOnError: true })).data;
  if (!chat.choices[0].message.content) throw new Error(JSON.stringify(chat));
  const texts = { model: 'embedder', input: ['one two', 'three'] };
  const vectors = (await createEmbeddings({ body: texts, throwOnError: true })).data;
  if (vectors.data.length !== 2) throw new Error(JSON.stringify(vectors));
  console.log('hey-api passed');
}

main().catch((error) => { console.error(error); process.exit(1); });
