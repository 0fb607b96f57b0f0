// What the official JavaScript client does with credentials: run with the base URL, a binding, and
// an API key or the URL of an issuer, it prints one JSON object with what came of it.
import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import {
  ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';
import { ListTasksRequest, ListTasksResponse, SendMessageRequest, StreamResponse, Task }
  from '@a2a-js/sdk';

const [url, asked, credential] = process.argv.slice(2);
const renews = credential.startsWith('http');
const statuses = [];
let token;

async function renew(lifetime) {
  const answer = await fetch(`${credential}/token?lifetime=${lifetime}`);
  token = (await answer.json()).token;
}
const headers = async () =>
  renews ? { Authorization: `Bearer ${token}` } : { 'X-API-Key': credential };

const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
  headers,
  async shouldRetryWithHeaders(request, response) {
    statuses.push(response.status);
    if (response.status !== 401 || !renews) return undefined;
    await renew(300);
    return headers();
  },
});
const client = await new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    preferredTransports: [asked],
    transports: [
      new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl }),
    ],
  }),
).createFromUrl(url);

const request = (text) => SendMessageRequest.fromJSON({
  message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }] },
});

if (renews) await renew(1);
const sent = await client.sendMessage(request('echo hello'));
while (renews && !statuses.includes(401)) {
  await client.getTask({ tenant: '', id: sent.id });
  await setTimeout(50);
}
const stream = [];
for await (const event of client.sendMessageStream(request('stream 5 1'))) {
  stream.push(StreamResponse.toJSON(event));
}
if (renews) token = (await (await fetch(`${credential}/token?lifetime=-1`)).json()).token;
const restreamed = [];
for await (const event of client.sendMessageStream(request('stream 5 1'))) {
  restreamed.push(StreamResponse.toJSON(event));
}
const listed = ListTasksResponse.toJSON(await client.listTasks(ListTasksRequest.fromJSON({})));
process.stdout.write(JSON.stringify({
  transport: client.transport.constructor.name, sent: Task.toJSON(sent), stream, restreamed,
  listed, statuses,
}));
