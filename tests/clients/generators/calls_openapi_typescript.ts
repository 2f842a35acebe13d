// Calls chat, embeddings and models with openapi-fetch and the types that openapi-typescript made.
import createClient from 'openapi-fetch';
import type { paths } from './openapi-typescript';

const client = createClient<paths>({
  baseUrl: process.env.MODEL_POOL_URL + '/llm', headers: { authorization: `Bearer ${process.env.MODEL_POOL_KEY}` },
});

async function main() {
  const listed = await client.GET('/v1/models');
  const models = (listed.data as { data: { id: string }[] }).data;
  if (!models.some((model) => model.id === 'tiny-guide')) throw new Error(JSON.stringify(listed.error));
  const question = { role: 'user' as const, content: 'What is a priority?' };
  const body = { model: 'tiny-guide', max_tokens: 4, messages: [question] };
  const chat: any = (await client.POST('/v1/chat/completions', { body })).data;
  if (!chat.choices[0].message.content) throw new Error(JSON.stringify(chat));
  const streamed = await client.POST('/v1/chat/completions', { body: { ...body, stream: true }, parseAs: 'text' });
  const events = String(streamed.data).split('\n').filter((line) => line.startsWith('data: '));
  if (events.length < 4 || events.at(-1) !== 'data: [DONE]') throw new Error(events.join('\n'));
  const vectors = await client.POST('/v1/embeddings', { body: { model: 'embedder', input: ['one two', 'three'] } });
  if (vectors.data!.data.length !== 2) throw new Error(JSON.stringify(vectors.error));
  console.log('openapi-typescript passed');
}

main().catch((error) => { console.error(error); process.exit(1); });
