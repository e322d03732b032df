"""Where the gateways under test are, as `tandem up` prints it after `ready`: TANDEM_URL, and TANDEM_TOOLS_URL
of one whose model's chat template knows tools."""

import os

import anthropic
import openai
import pytest

MODEL = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="session")
def url():
    return os.environ["TANDEM_URL"]


@pytest.fixture(scope="session")
def tools_url():
    return os.environ["TANDEM_TOOLS_URL"]


@pytest.fixture
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def claude(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def claude_tools(tools_url):
    return anthropic.Anthropic(base_url=tools_url, api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def model():
    return MODEL
