//! The parts that every endpoint shares: the [`Endpoint`] trait and the builder around it.

use super::full_response::Response;
use super::future::ResponseFuture;
use super::handle::Client;
use super::options::CallOptions;
use super::request::{Operation, Request};
use super::response::Success;
use crate::Error;

/// One endpoint with the arguments of one call: how its request is built and its response decoded.
pub(crate) trait Endpoint: Send + 'static {
    /// The result of a call.
    type Output: Send + 'static;

    /// Returns the operation, for error messages and spans.
    fn operation(&self) -> Operation;

    /// Builds the request.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Input` if the arguments cannot be sent.
    fn request(&self) -> Result<Request, Error>;

    /// Decodes a 2xx response.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if the response is invalid. The client adds the operation and the number of
    /// attempts.
    fn decode(&self, success: Success) -> Result<Self::Output, Error>;
}

/// A call of an endpoint, ready to be sent: the core of every builder.
#[derive(Clone)]
pub(crate) struct EndpointCall<E> {
    pub(crate) client: Client,
    pub(crate) endpoint: E,
    pub(crate) options: CallOptions,
}

impl<E: Endpoint> EndpointCall<E> {
    /// Creates a call with the settings of the client.
    pub(crate) fn new(client: &Client, endpoint: E) -> Self {
        Self {
            client: client.clone(),
            endpoint,
            options: CallOptions::default(),
        }
    }

    /// Returns the future of the value.
    pub(crate) fn send(self) -> ResponseFuture<E::Output> {
        let Self {
            client,
            endpoint,
            options,
        } = self;
        let request = endpoint.request();
        client.send(endpoint.operation(), request, options, move |success| {
            endpoint.decode(success)
        })
    }

    /// Returns the future of the value with the status and the headers of its response.
    pub(crate) fn response(self) -> ResponseFuture<Response<E::Output>> {
        let Self {
            client,
            endpoint,
            options,
        } = self;
        let request = endpoint.request();
        client.send(endpoint.operation(), request, options, move |success| {
            Response::read(success, |success| endpoint.decode(success))
        })
    }
}

/// Defines the public builder of an [`Endpoint`]: a struct around its [`EndpointCall`] in the field
/// `call`, with the settings that every call has. It is sent by `.await`. With `idempotent`, it has
/// that setter too.
macro_rules! endpoint_builder {
    ($(#[$docs:meta])* pub struct $builder:ident($endpoint:ty) -> $output:ty, idempotent;) => {
        crate::client::endpoint_builder! { $(#[$docs])* pub struct $builder($endpoint) -> $output; }

        impl $builder {
            /// Allows retries of this call even if an earlier attempt may have been applied.
            /// Default: only retries that are safe for this call; see
            /// [`RetryPolicy`](crate::RetryPolicy).
            pub fn idempotent(mut self) -> Self {
                self.call.options.idempotent = true;
                self
            }
        }
    };
    ($(#[$docs:meta])* pub struct $builder:ident($endpoint:ty) -> $output:ty;) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[must_use = "a call is sent only when it is awaited"]
        pub struct $builder {
            pub(super) call: crate::client::EndpointCall<$endpoint>,
        }

        impl $builder {
            pub(super) fn new(client: &crate::Client, endpoint: $endpoint) -> Self {
                let call = crate::client::EndpointCall::new(client, endpoint);
                Self { call }
            }

            /// Returns a future that sends the call and returns the value in a
            /// [`Response`](crate::client::Response), with the status and the headers of the response
            /// and the number of attempts. Set everything else first.
            pub fn response(
                self,
            ) -> crate::client::ResponseFuture<crate::client::Response<$output>> {
                self.call.response()
            }
        }

        crate::client::call_settings!($builder, call.options);

        impl crate::client::TakesOptions for $builder {
            fn options(mut self, options: crate::client::CallOptions) -> Self {
                self.call.options = options;
                self
            }
        }

        crate::client::wait_for_call!($builder => Result<$output, crate::Error>);

        crate::client::opaque_debug!($builder);

        impl IntoFuture for $builder {
            type Output = Result<$output, crate::Error>;
            type IntoFuture = crate::client::ResponseFuture<$output>;

            /// Returns the future that sends the call. `.await` calls this itself.
            fn into_future(self) -> Self::IntoFuture {
                self.call.send()
            }
        }
    };
}

pub(crate) use endpoint_builder;
