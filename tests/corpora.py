"""A small coherent corpus that several tests share."""

from graph.types import Document

ISLES = [
    Document(
        "lantern", "Lantern (ferry)", "The Lantern is a ferry of Port Ellery. She was built in 1911 by the Marlow Yard."
    ),
    Document("marlow", "Marlow Yard", "The Marlow Yard stands in Quill. It was founded by Ada Marlow in 1880."),
    Document("ada", "Ada Marlow", "Ada Marlow was a shipwright. She was born in Tarn and died on 4 May 1931."),
    Document("tarn", "Tarn", "Tarn is a village of 312 people. Its church bell rings at 10:30 every morning."),
    Document(
        "bread", "Kelp bread", "Kelp bread is baked in Tarn from barley flour and dried kelp. It keeps for nine days."
    ),
]
